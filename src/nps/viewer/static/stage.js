// The frames: true, predicted, and beside them the unedited or another model's. Which slots are
// lit, which slot is chosen, and dragging a slot to another place.
import { byId, el, fill } from "./dom.js";
import { placeSlot } from "./edits.js";
import { Picture } from "./picture.js";
import { firings } from "./playback.js";
import { changeEdits, comparing, model, select, session, shortTitles, shown } from "./session.js";
import { emit, on, state } from "./state.js";

const pictures = {
  true: new Picture("true"), predicted: new Picture("predicted"),
  ghost: new Picture("predicted"), other: new Picture("predicted"), // beside the predicted one
};
const lit = new Set();
let hovered = null;
let marked = true;
let dragging = null;

/** The pictures of what is shown: {picture, play}. */
function visible() {
  const play = shown();
  const { base, other, world } = session;
  const found = [{ picture: pictures.true, play }];
  if (play.predicted) found.push({ picture: pictures.predicted, play });
  if (play === world) return found;
  if (comparing()) {
    if (other.predicted) found.push({ picture: pictures.other, play: other });
  } else if (base?.predicted) {
    found.push({ picture: pictures.ghost, play: base });
  }
  return found;
}

function captionOf(picture, play) {
  if (picture === pictures.true) return "True";
  if (play === session.world) return "Imagined";
  const drawn = play.decoded ? "" : " (nearest)";
  if (picture === pictures.ghost) return `Unedited${drawn}`;
  if (comparing()) return shortTitles()[picture === pictures.other ? 1 : 0];
  return `Predicted${drawn}`;
}

const NEAREST = "This model draws nothing: its prediction is shown as the frame with the nearest "
  + "encoding.";

function arrange() {
  if (!shown()) return;
  const all = visible();
  for (const { picture, play } of all) {
    picture.prepare(play, captionOf(picture, play));
    const nearest = picture !== pictures.true && !play.decoded && play !== session.world;
    picture.caption.title = nearest ? NEAREST : "";
  }
  const nodes = all.map(({ picture }) => picture.node);
  const stage = byId("stage");
  const same = nodes.length === stage.children.length;
  if (!same || nodes.some((node, i) => stage.children[i] !== node)) stage.replaceChildren(...nodes);
  stage.dataset.count = nodes.length;
  arrangeLook();
}

/** Draw frame `state.t` everywhere; true once all of its pictures have come. */
export function drawStage() {
  const play = shown();
  if (!play) return false;
  let complete = true;
  for (const { picture, play: of } of visible()) {
    const t = Math.min(state.t, of.steps);
    complete = picture.draw(of.frame(picture.kind, t)) && complete;
    const isTrue = picture === pictures.true;
    picture.mark(isTrue ? {} : { right: of.right?.[t], error: of.error[t], name: of.errorName });
  }
  drawMasks(play);
  drawMarks(play);
  play.prefetch(play.predicted ? ["true", "predicted"] : ["true"], state.t);
  return complete;
}

function drawMasks(play) {
  const slots = hovered === null ? [...lit] : [hovered];
  const masks = slots.length && play.maskSize ? play.masks(Math.min(state.t, play.steps)) : null;
  pictures.true.light(masks, play.maskSize, slots);
}

/** What rules do in the step that follows: the rule of each slot, and arrows from its context. */
function drawMarks(play) {
  const on = play.predicted ? pictures.predicted : pictures.true;
  for (const { picture } of visible()) if (picture !== on) picture.overlay([], []);
  if (!marked || !play.hasPlaces) {
    on.overlay([], []);
    return;
  }
  const t = Math.min(state.t, play.steps);
  const marks = [];
  const arrows = [];
  const fired = firings(play, t);
  for (let slot = 0; slot < play.slots; slot += 1) {
    const moved = dragging?.slot === slot && dragging.at;
    const at = moved || play.placeAt(t, slot);
    if (!at) continue;
    const own = fired.filter((each) => each.slot === slot);
    for (const { rule, context } of own) {
      const from = context >= 0 && context !== slot ? play.placeAt(t, context) : null;
      const faint = state.slot !== null && state.slot !== slot;
      if (from) arrows.push({ from, to: at, rule, faint });
    }
    marks.push({ slot, at, rule: own.at(-1)?.rule ?? -1, chosen: state.slot === slot });
  }
  on.overlay(marks, arrows);
}

// -- what is shown over the frames -----------------------------------------------------------

function arrangeLook() {
  const play = shown();
  const row = byId("look");
  const chips = [];
  if (play.maskSize) {
    chips.push(el("span", { class: "soft", text: "Where it looks" }));
    for (let slot = 0; slot < play.slots; slot += 1) {
      chips.push(el("button", {
        class: "chip", "aria-pressed": String(lit.has(slot)), "data-key": `light ${slot}`,
        text: play.slotNames[slot], title: "Light up what this slot looks at in the true frame",
        onclick: () => {
          if (!lit.delete(slot)) lit.add(slot);
          arrangeLook();
          emit("sheet");
        },
      }));
    }
  }
  if (play.hasPlaces) {
    chips.push(el("button", {
      class: "chip last", "aria-pressed": String(marked), "data-key": "marks",
      text: "Slots and rules",
      title: "Show slots as numbered discs, coloured by the rule that fires next (m)",
      onclick: toggleMarks,
    }));
  }
  row.hidden = !chips.length;
  fill(row, chips);
}

export function toggleMarks() {
  marked = !marked;
  arrangeLook();
  emit("sheet");
}

/** Light one slot for as long as the pointer is on its name. */
export function hoverSlot(slot) {
  if (hovered === slot) return;
  hovered = slot;
  emit("sheet");
}

// -- choosing and dragging slots in the frame --------------------------------------------------

function slotAt(event) {
  const group = event.target.closest?.(".slot-mark");
  return group ? Number(group.dataset.slot) : null;
}

function startDrag(event) {
  const slot = slotAt(event);
  if (slot === null || event.button !== 0) return;
  select(slot, 0);
  const play = shown();
  if (play === session.world || !model().drags || state.t >= play.steps) return;
  dragging = { slot, at: null, from: [event.clientX, event.clientY] };
  pictures.predicted.screen.setPointerCapture(event.pointerId);
  event.preventDefault();
}

function moveDrag(event) {
  if (!dragging) return;
  const [x, y] = dragging.from;
  if (!dragging.at && Math.hypot(event.clientX - x, event.clientY - y) < 4) return;
  dragging.at = pictures.predicted.place(event);
  drawMarks(shown());
}

function endDrag() {
  const drag = dragging;
  dragging = null;
  if (!drag?.at) return;
  const [down, right] = drag.at.map((share) => Math.round(share * 1000) / 1000);
  const edits = placeSlot(state.edits, state.t, drag.slot, "row", down);
  changeEdits(placeSlot(edits, state.t, drag.slot, "column", right));
}

export function startStage() {
  const { screen } = pictures.predicted;
  screen.addEventListener("pointerdown", startDrag);
  screen.addEventListener("pointermove", moveDrag);
  screen.addEventListener("pointerup", endDrag);
  screen.addEventListener("pointercancel", () => { dragging = null; emit("sheet"); });
  pictures.true.screen.addEventListener("pointerdown", (event) => {
    const slot = slotAt(event);
    if (slot !== null) select(slot, 0);
  });
  on("play tab", arrange);
}
