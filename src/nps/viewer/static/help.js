// The keys, on "?".
import { byId, el, openSheet, para, row } from "./dom.js";
import { on } from "./state.js";

const HELP = [
  ["Space", "play and pause"],
  ["← →", "one frame back, one on"],
  ["Home End", "first and last frame"],
  ["+ −", "faster, slower"],
  ["↑ ↓", "choose a slot"],
  ["[ ]", "choose a stage"],
  ["m", "slots and rules in the frame"],
  ["Ctrl Z", "undo an edit; with Shift, redo"],
  ["Ctrl wheel", "zoom the time line"],
  ["?", "these keys"],
];

export function startHelp() {
  byId("help").onclick = openHelp;
  on("help", openHelp);
}

function openHelp() {
  const rows = HELP.map(([keys, text]) =>
    row(keys.split(" ").map((key) => el("kbd", { text: key })), text));
  openSheet("Keys", el("table", { class: "help" }, rows),
    para("A coloured cell of the raster is a rule that fires on a slot: "
      + "click it to see why. The arrow in the frame leads from the slot that the rule reads to "
      + "the one that it changes. “Truly” is what happens in the true world, whatever the model "
      + "predicts: “free” is a move to a free place, “nothing” none. In Play, the arrow keys move the chosen slot."));
}
