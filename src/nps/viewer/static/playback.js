// One episode as the page reads it: numbers from base64, frames from sheets. `WorldHistory` has the
// same face for a world that the user steps, so that frames and time line draw both.
import { ask, dataImage } from "./api.js";
import { canonical } from "./state.js";
import { sheet } from "./sheets.js";

function unpack(text, Kind) {
  if (text === null) return null;
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Kind(bytes.buffer); // little-endian, as every machine with a browser
}

/** What fires in a step, the first stage first. */
export function firings(play, step) {
  const found = [];
  for (let stage = 0; play.hasRules && step < play.steps && stage < play.stages; stage += 1) {
    for (let slot = 0; slot < play.slots; slot += 1) {
      const rule = play.ruleAt(step, stage, slot);
      if (rule >= 0) found.push({ stage, slot, rule, context: play.contextAt(step, stage, slot) });
    }
  }
  return found;
}

class Playback {
  constructor(answer) {
    this.id = answer.play;
    this.title = answer.title;
    this.steps = answer.steps;
    this.stages = answer.stages;
    this.slots = answer.slots;
    this.rules = answer.rules;
    this.slotNames = answer.slot_names;
    this.height = answer.height;
    this.width = answer.width;
    this.maskSize = answer.mask;
    this.decoded = answer.decoded;
    this.predicted = answer.predicted;
    this.perSheet = answer.per_sheet;
    this.error = answer.error;
    this.errorName = answer.error_name;
    this.right = answer.right;
    this.events = answer.events ?? [];
    this.empty = answer.empty ?? null;
    this.actions = answer.actions;
    this.featureNames = answer.feature_names;
    this.same = answer.same;
    this.firstDifference = answer.base?.first_difference ?? null;
    this.firstChange = answer.base?.first_change ?? null; // of the slots
    this.ruleData = unpack(answer.rule, Int16Array);
    this.contextData = unpack(answer.context, Int16Array);
    this.placeData = unpack(answer.places, Float32Array);
    this.featureData = unpack(answer.features, Float32Array);
  }

  /** Steps that the time line has room for. */
  get room() {
    return this.steps;
  }

  get hasRules() {
    return this.ruleData !== null;
  }

  get hasPlaces() {
    return this.placeData !== null;
  }

  ruleAt(step, stage, slot) {
    return this.ruleData[(step * this.stages + stage) * this.slots + slot];
  }

  contextAt(step, stage, slot) {
    return this.contextData[(step * this.stages + stage) * this.slots + slot];
  }

  /** Whether a step leaves a slot out. */
  isEmpty(step, slot) {
    return this.empty?.[step]?.includes(slot) ?? false;
  }

  /** Row and column as shares of the picture's sides, or null. */
  placeAt(frame, slot) {
    const first = 2 * (frame * this.slots + slot);
    const place = [...this.placeData.slice(first, first + 2)];
    return place.every(Number.isFinite) ? place : null;
  }

  featureAt(frame, slot, feature) {
    return this.featureData[(frame * this.slots + slot) * this.featureNames.length + feature];
  }

  /** Where a frame is: an image and the corner in it; null while it is on its way. */
  frame(kind, t) {
    const image = sheet(this.id, kind, Math.floor(t / this.perSheet));
    if (!image) return null;
    const tile = t % this.perSheet;
    return { image, x: (tile % 8) * this.width, y: Math.floor(tile / 8) * this.height };
  }

  /** The sheet of masks that frame t is in, and its row there. */
  masks(t) {
    const image = sheet(this.id, "masks", Math.floor(t / this.perSheet));
    return image && { image, y: (t % this.perSheet) * this.maskSize[0] };
  }

  prefetch(kinds, t) {
    const here = Math.floor(t / this.perSheet);
    const last = Math.floor(this.steps / this.perSheet);
    for (const kind of kinds) {
      if (here > 0) sheet(this.id, kind, here - 1);
      if (here < last) sheet(this.id, kind, here + 1);
    }
  }
}

const MOST_PLAYS = 8;
const plays = new Map();

/** The playback of an episode of a model under edits, from memory if it was shown lately. */
export async function fetchPlay(body) {
  const key = canonical(body);
  const found = plays.get(key) ?? new Playback(await ask("/api/play", body));
  plays.delete(key);
  plays.set(key, found);
  if (plays.size > MOST_PLAYS) plays.delete(plays.keys().next().value);
  return found;
}

export function forgetPlays() {
  plays.clear();
}

/** What happened so far in a world that the user steps. */
export class WorldHistory {
  constructor(model, answer) {
    this.world = answer.world;
    this.id = `world ${answer.world}`;
    this.slotNames = answer.slots ?? model.slots;
    this.slots = this.slotNames.length;
    this.actionNames = answer.actions ?? model.actions;
    this.rules = model.rules.length;
    this.stages = Math.max(1, model.stages);
    this.predicted = true;
    this.errorName = model.error;
    this.maskSize = null;
    this.actions = [];
    this.moments = [];
    this.pictures = [];
    this.hasRules = model.rules.length > 0;
    this.hasPlaces = false;
  }

  async add(moment, action) {
    const [seen, imagined] = await Promise.all([moment.true, moment.imagined].map(dataImage));
    if (action !== null) this.actions.push(action);
    this.moments.push(moment);
    this.pictures.push({ true: seen, predicted: imagined });
    this.height = seen.height;
    this.width = seen.width;
    this.hasPlaces ||= moment.places !== null;
  }

  get steps() {
    return this.moments.length - 1;
  }

  get room() {
    return Math.max(12, this.steps);
  }

  get error() {
    return this.moments.map((moment) => moment.error);
  }

  get right() {
    return this.moments.map((moment) => moment.right);
  }

  get events() {
    return this.moments.slice(1).map((moment) => moment.event);
  }

  get parted() {
    return this.moments.at(-1)?.parted ?? null;
  }

  /** The step at which the model last saw the world. */
  get looked() {
    return this.moments.at(-1)?.looked ?? 0;
  }

  ruleAt(step, stage, slot) {
    return this.moments[step + 1].rule[stage]?.[slot] ?? -1;
  }

  contextAt(step, stage, slot) {
    return this.moments[step + 1].context[stage]?.[slot] ?? -1;
  }

  placeAt(frame, slot) {
    return this.moments[frame]?.places?.[slot] ?? null;
  }

  frame(kind, t) {
    const image = this.pictures[t]?.[kind];
    return image ? { image, x: 0, y: 0 } : null;
  }

  prefetch() {
    // Everything is here.
  }
}
