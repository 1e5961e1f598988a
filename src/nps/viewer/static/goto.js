// Controls that lead to another slot, stage or frame.
import { el, indexed, menu } from "./dom.js";
import { select, setTime } from "./session.js";

export function slotMenu(play, key, slot, stage) {
  return menu("Slot", indexed(play.slotNames), {
    "data-key": `${key} slot`, value: slot, onpick: (picked) => select(picked, stage),
  });
}

export function stageMenu(play, key, slot, stage) {
  const stages = Array.from({ length: play.stages }, (_, k) => [k, `stage ${k}`]);
  return menu("Stage", stages, {
    "data-key": `${key} stage`, value: stage, onpick: (picked) => select(slot, picked),
  });
}

export function timeLink(key, text, t) {
  return el("button", { class: "link", "data-key": key, text, onclick: () => setTime(t) });
}
