// What can be changed at one step: which rule fires on a slot and what it reads, and what the slot
// is before the step.
import { isFrozen } from "./api.js";
import { el, indexed, menu, para } from "./dom.js";
import { forceChoice, placeSlot } from "./edits.js";
import { changeEdits, model, select, session } from "./session.js";
import { state } from "./state.js";

const FREE = ["", "as the model chooses"];
let lastFeature = 0;

/** The chosen slot, else the first on which a rule fires. */
function slotHere(play) {
  if (state.slot !== null) return state.slot;
  for (let slot = 0; play.hasRules && slot < play.slots; slot += 1) {
    for (let stage = 0; stage < play.stages; stage += 1) {
      if (play.ruleAt(state.t, stage, slot) >= 0) return slot;
    }
  }
  return 0;
}

export function forceFields() {
  const { play } = session;
  const { forces } = model();
  if (!play.hasRules || !forces) return null;
  const [step, stage, slot] = [state.t, Math.min(state.stage, play.stages - 1), slotHere(play)];
  const found = (state.edits.forced ?? []).find((entry) =>
    entry.step === step && (entry.stage ?? 0) === stage && entry.slot === slot);
  const slots = menu("Slot", indexed(play.slotNames), {
    "data-key": "force slot", value: slot, onchange: () => select(Number(slots.value), stage),
  });
  const value = (node) => (node.value === "" ? null : Number(node.value));
  const apply = () => changeEdits(forceChoice(
    state.edits, { step, stage, slot, rule: value(rule), context: value(context) },
    model().kind === "sequential",
  ));
  if (play.isEmpty(step, slot)) {
    return el("div", { class: "fields" }, field("on", slots),
      para("This slot is empty at this step: no rule may fire on it."));
  }
  // Only what the layer allows.
  const off = [...forces.off, ...(state.edits.disabled ?? [])];
  const rules = indexed(model().rules).filter(([i]) => !off.includes(i) || i === found?.rule);
  const read = indexed(play.slotNames).filter(([i]) =>
    (i !== slot || forces.itself) && !play.isEmpty(step, i));
  const rule = menu("Rule that fires", [FREE, [-1, "nothing"], ...rules], {
    "data-key": "force rule", value: found?.rule ?? "", disabled: isFrozen(), onchange: apply,
  });
  const context = menu("Slot that it reads", [FREE, ...read], {
    "data-key": "force context", value: found?.context ?? "", disabled: isFrozen(), onchange: apply,
  });
  return el("div", { class: "fields" },
    play.stages > 1 ? field("stage", stageMenu(play, stage, slot)) : null,
    field("on", slots), field("fires", rule), forces.context ? field("reading", context) : null);
}

function stageMenu(play, stage, slot) {
  const stages = Array.from({ length: play.stages }, (_, k) => [k, `stage ${k}`]);
  return menu("Stage", stages, {
    "data-key": "force stage", value: stage,
    onchange: (event) => select(slot, Number(event.target.value)),
  });
}

function field(text, control) {
  return el("label", {}, el("span", { text }), control);
}

export function placeFields() {
  const { play } = session;
  const names = play.featureNames;
  if (!names.length) return null;
  const slot = slotHere(play);
  lastFeature = Math.min(lastFeature, names.length - 1);
  const value = el("input", {
    type: "number", step: "any", "aria-label": "Value of the feature", "data-key": "place value",
    disabled: isFrozen(),
    onchange: () => {
      if (value.value === "") return;
      const name = names[lastFeature];
      changeEdits(placeSlot(state.edits, state.t, slot, name, Number(value.value)));
    },
  });
  const show = () => { value.value = play.featureAt(state.t, slot, lastFeature).toFixed(3); };
  const feature = menu("Feature of the slot", indexed(names), {
    "data-key": "place feature", value: lastFeature,
    onchange: () => { lastFeature = Number(feature.value); show(); },
  });
  show();
  const text = play.hasRules ? "its" : play.slotNames[slot];
  return el("div", { class: "fields" }, el("label", {}, el("span", { text }), feature, value));
}
