// Edits as plain values, as `nps.inspect.Edits` reads them: every change gives new edits.
import { ruleName } from "./colours.js";
import { number, signed } from "./dom.js";

/** Without empty lists, in one order: equal edits are equal text. */
export function tidyEdits(edits) {
  const kept = Object.entries(edits).filter(([, entries]) => entries?.length);
  const tidied = Object.fromEntries(kept);
  if (tidied.disabled) tidied.disabled = [...new Set(tidied.disabled)].sort((a, b) => a - b);
  return tidied;
}

export function isEdited(edits) {
  return Object.keys(edits).length > 0;
}

function replaced(edits, kind, same, entry) {
  const others = (edits[kind] ?? []).filter((other) => !same(other));
  return tidyEdits({ ...edits, [kind]: entry === null ? others : [...others, entry] });
}

export function switchRule(edits, rule, off) {
  return replaced(edits, "disabled", (other) => other === rule, off ? rule : null);
}

export function scaleRule(edits, rule, factor) {
  const entry = factor === 1 ? null : { rule, factor };
  return replaced(edits, "scaled", (other) => other.rule === rule, entry);
}

export function addToRule(edits, rule, feature, amount) {
  const same = (other) => other.rule === rule && other.feature === feature;
  return replaced(edits, "added", same, amount === 0 ? null : { rule, feature, amount });
}

/** In sequential NPS a stage has one pair of rule and slot, so a forced one replaces another. */
export function forceChoice(edits, choice, alone) {
  const same = (other) => other.step === choice.step && (other.stage ?? 0) === choice.stage
    && (alone || other.slot === choice.slot);
  const free = choice.rule === null && choice.context === null;
  return replaced(edits, "forced", same, free ? null : choice);
}

export function placeSlot(edits, step, slot, feature, value) {
  const same = (other) => other.step === step && other.slot === slot && other.feature === feature;
  return replaced(edits, "placed", same, { step, slot, feature, value });
}

export function changeAction(edits, step, action, original) {
  const entry = action === original ? null : { step, action };
  return replaced(edits, "acted", (other) => other.step === step, entry);
}

/** What was edited, as people say it, with the edits that are left when each is taken back. */
export function listEdits(edits, model, play) {
  const slot = (m) => play.slotNames[m] ?? `slot ${m}`;
  const found = [];
  const put = (kind, gone, text, { rule = null, step = null }) => {
    const kept = edits[kind].filter((entry) => !gone.includes(entry));
    found.push({ text, rule, step, rest: tidyEdits({ ...edits, [kind]: kept }) });
  };
  for (const rule of edits.disabled ?? []) {
    put("disabled", [rule], `${ruleName(model, rule)} off`, { rule });
  }
  for (const entry of edits.scaled ?? []) {
    const text = `${ruleName(model, entry.rule)} × ${number(entry.factor)}`;
    put("scaled", [entry], text, entry);
  }
  for (const entry of edits.added ?? []) {
    const text = `${ruleName(model, entry.rule)}: ${entry.feature} ${signed(entry.amount)}`;
    put("added", [entry], text, entry);
  }
  for (const entry of edits.forced ?? []) {
    const { rule = null, context = null } = entry;
    const [on, read] = [slot(entry.slot), slot(context)];
    const text = rule === null ? `${on} reads ${read}`
      : `${ruleName(model, rule)} on ${on}${context === null ? "" : ` reading ${read}`}`;
    put("forced", [entry], text, entry);
  }
  for (const entries of groupedMoves(edits.placed ?? [])) {
    const places = entries.every((entry) => ["row", "column"].includes(entry.feature));
    const values = entries.map((entry) => `${entry.feature} = ${number(entry.value)}`).join(", ");
    const name = slot(entries[0].slot);
    const text = places && entries.length === 2 ? `${name} moved` : `${name}: ${values}`;
    put("placed", entries, text, entries[0]);
  }
  for (const entry of edits.acted ?? []) {
    put("acted", [entry], `action ${model.actions[entry.action] ?? entry.action}`, entry);
  }
  return found;
}

/** Row and column of one slot at one step are one move. */
function groupedMoves(entries) {
  const groups = new Map();
  for (const entry of entries) {
    const key = `${entry.step} ${entry.slot}`;
    groups.set(key, [...(groups.get(key) ?? []), entry]);
  }
  return groups.values();
}

/** Edits that change the model itself, and can be saved with it. */
export function lastingEdits(edits) {
  const { disabled = [], scaled = [], added = [] } = edits;
  return tidyEdits({ disabled, scaled, added });
}
