// The models, and the playbacks that are shown: the one under edits, the one without (its ghost),
// another model's, or a world that the user steps. Changes come through here, and are told by
// "play" (other playbacks), "time", "select", "edits", "tab" and "busy".
import { ask } from "./api.js";
import { byId, clamp, say } from "./dom.js";
import { isEdited, tidyEdits } from "./edits.js";
import { fetchPlay, forgetPlays } from "./playback.js";
import { forgiveSheets } from "./sheets.js";
import { emit, on, state } from "./state.js";

export const session = {
  models: [], play: null, base: null, other: null, world: null, took: null, busy: false,
};

const past = [];
const future = [];

export function model() {
  return session.models[state.model];
}

export function otherModel() {
  return state.with === null ? null : session.models[state.with];
}

/** What the frames and the time line show now. */
export function shown() {
  return state.tab === "play" && session.world ? session.world : session.play;
}

/** Whether another model is laid beside this one, on the same episode. */
export function comparing() {
  const { play, other } = session;
  return state.tab === "compare" && state.with !== null && other !== null && shown() === play
    && other.same === play.same;
}

/** Whether both have the same rules, one by one: one run is an edit of the other. */
export function sameRules() {
  const [one, two] = [model(), otherModel()];
  return one.lineage !== null && one.lineage === two.lineage
    && one.rules.length === two.rules.length;
}

/** Whether their errors are in one unit: distances of encodings are, of one encoder only. */
export function comparableErrors() {
  return model().encoder === otherModel().encoder;
}

/** What tells the titles of the two models apart. */
export function shortTitles() {
  const titles = [model().title, otherModel().title];
  const [one, two] = titles.map((title) => title.split(", "));
  const short = (mine, other) => mine.filter((part) => !other.includes(part)).join(", ");
  return [short(one, two) || titles[0], short(two, one) || titles[1]];
}

export async function loadModels() {
  session.models = (await ask("/api/models", {})).models;
  emit("models");
}

/** Bring values from outside into the range that the models have. */
export function adopt(values) {
  Object.assign(state, values);
  const last = session.models.length - 1;
  if (state.model > last) state.model = 0;
  if (state.with !== null && (state.with > last || state.with === state.model)) state.with = null;
  state.episode = clamp(state.episode, 0, model().episodes - 1);
  state.edits = tidyEdits(state.edits);
}

/** What /api/play is asked for. */
export function asked() {
  return { model: state.model, episode: state.episode, edits: state.edits };
}

let running = null;
let again = false;
let good = { model: 0, episode: 0, edits: {} };

/** Load what `state` asks for; while one is loading, only the latest wish is kept. */
export function reload() {
  again = true;
  running ??= (async () => {
    setBusy(true);
    try {
      while (again) {
        again = false;
        await load();
      }
    } finally {
      running = null;
      setBusy(false);
    }
  })();
  return running;
}

/** When nothing is being loaded any more. */
export function settled() {
  return running ?? Promise.resolve();
}

function setBusy(busy) {
  session.busy = busy;
  emit("busy");
}

async function load() {
  const wanted = asked();
  const began = performance.now();
  try {
    const play = await fetchPlay(wanted);
    session.took = performance.now() - began;
    session.base = isEdited(wanted.edits) ? await fetchPlay({ ...wanted, edits: {} }) : null;
    session.other = state.with === null ? null : await fetchOther(wanted.episode);
    session.play = play;
    good = wanted;
  } catch (error) {
    say(error.message, "error");
    if (session.play === null) throw error;
    if (again) return;
    Object.assign(state, good); // as it was before
    if (past.at(-1) === good.edits) past.pop();
    emit("edits");
    emit("models");
    return;
  }
  state.t = Math.min(state.t, shown().steps);
  if (state.slot !== null && state.slot >= session.play.slots) state.slot = null;
  if (state.stage >= session.play.stages) state.stage = 0;
  emit("play");
  emit("time");
}

async function fetchOther(episode) {
  try {
    return await fetchPlay({ model: state.with, episode, edits: {} });
  } catch (error) {
    say(`${session.models[state.with].title}: ${error.message}`, "error");
    state.with = null;
    return null;
  }
}

/** Another model or episode; edits belong to the model that they were made in. */
export function openEpisode(values) {
  if (values.model !== undefined && values.model !== state.model) {
    state.edits = {};
    state.slot = null;
    session.world = null;
    past.length = future.length = 0;
    // The model that was compared with is the one that is shown now.
    if (state.with === values.model) state.with = session.other = null;
  }
  Object.assign(state, values);
  state.episode = clamp(state.episode, 0, model().episodes - 1);
  emit("models");
  emit("edits");
  return reload();
}

export function compareWith(other) {
  state.with = other;
  return reload();
}

/** Other edits; `same` joins it with the last change in the history, as while a slider moves. */
export function changeEdits(edits, same = false) {
  if (!same) {
    past.push(state.edits);
    if (past.length > 200) past.shift();
  }
  future.length = 0;
  state.edits = edits;
  emit("edits");
  return reload();
}

export function undo() {
  return travel(past, future);
}

export function redo() {
  return travel(future, past);
}

export function canUndo() {
  return past.length > 0;
}

export function canRedo() {
  return future.length > 0;
}

function travel(from, to) {
  if (!from.length) return Promise.resolve();
  to.push(state.edits);
  state.edits = from.pop();
  emit("edits");
  return reload();
}

export function setTime(t) {
  const now = clamp(Math.round(t), 0, shown()?.steps ?? 0);
  if (now === state.t) return;
  state.t = now;
  emit("time");
}

export function select(slot, stage = 0) {
  state.slot = slot;
  state.stage = stage;
  emit("select");
}

let timeOf = { episode: 0, world: 0 };

/** The world that the user steps has a clock of its own. */
export function openTab(tab) {
  if (tab === state.tab) return;
  const before = shown();
  timeOf[before === session.world ? "world" : "episode"] = state.t;
  state.tab = tab;
  const after = shown();
  emit("tab");
  if (after === before) return;
  state.t = Math.min(timeOf[after === session.world ? "world" : "episode"], after.steps);
  emit("play");
  emit("time");
}

export function showWorld(history) {
  if (session.world !== history && shown() !== session.world) timeOf.episode = state.t;
  session.world = history;
  state.t = history.steps;
  emit("play");
  emit("time");
}

let lost = 0;

// The server keeps a bounded number of playbacks: one that it forgot is asked for again.
on("lost", ({ play, error }) => {
  if (!/^play:/.test(error.message) || Date.now() - lost < 3000) {
    if (error.status) say(error.message, "error");
    return;
  }
  lost = Date.now();
  forgetPlays();
  reload().then(() => {
    forgiveSheets(play);
    emit("sheet");
  });
});

on("busy", () => byId("stage").classList.toggle("busy", session.busy));
