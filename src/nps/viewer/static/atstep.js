// What can be changed at one step: which rule fires on a slot and what it reads, and what the slot
// is before the step.
import { frozen } from "./api.js";
import { el, field, indexed, menu, para } from "./dom.js";
import { forceChoice, placeSlot } from "./edits.js";
import { slotMenu, stageMenu } from "./goto.js";
import { firings } from "./playback.js";
import { changeEdits, model, session } from "./session.js";
import { state } from "./state.js";

const FREE = ["", "as the model chooses"];
let lastFeature = 0;

/** The chosen slot, else the first on which a rule fires. */
function slotHere(play) {
  return state.slot ?? firings(play, state.t)[0]?.slot ?? 0;
}

export function forceFields() {
  const { play } = session;
  const { forces } = model();
  if (!play.hasRules || !forces) return null;
  const [step, stage, slot] = [state.t, Math.min(state.stage, play.stages - 1), slotHere(play)];
  const found = (state.edits.forced ?? []).find((entry) =>
    entry.step === step && (entry.stage ?? 0) === stage && entry.slot === slot);
  const slots = slotMenu(play, "force", slot, stage);
  const force = (change) => {
    const choice = { rule: null, context: null, ...found, step, stage, slot, ...change };
    changeEdits(forceChoice(state.edits, choice, model().kind === "sequential"));
  };
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
    "data-key": "force rule", value: found?.rule ?? "", disabled: frozen,
    onpick: (picked) => force({ rule: picked }),
  });
  const context = menu("Slot that it reads", [FREE, ...read], {
    "data-key": "force context", value: found?.context ?? "", disabled: frozen,
    onpick: (picked) => force({ context: picked }),
  });
  return el("div", { class: "fields" },
    play.stages > 1 ? field("stage", stageMenu(play, "force", slot, stage)) : null,
    field("on", slots), field("fires", rule), forces.context ? field("reading", context) : null);
}

export function placeFields() {
  const { play } = session;
  const names = play.featureNames;
  if (!names.length) return null;
  const slot = slotHere(play);
  lastFeature = Math.min(lastFeature, names.length - 1);
  const value = el("input", {
    type: "number", step: "any", "aria-label": "Value of the feature", "data-key": "place value",
    disabled: frozen,
    onchange: () => {
      if (value.value === "") return;
      const name = names[lastFeature];
      changeEdits(placeSlot(state.edits, state.t, slot, name, Number(value.value)));
    },
  });
  const show = () => { value.value = play.featureAt(state.t, slot, lastFeature).toFixed(3); };
  const feature = menu("Feature of the slot", indexed(names), {
    "data-key": "place feature", value: lastFeature,
    onpick: (picked) => { lastFeature = picked; show(); },
  });
  show();
  return el("div", { class: "fields" },
    field(play.hasRules ? "its" : play.slotNames[slot], feature, value));
}
