// "What if": rules off, scaled or biased. Each change re-rolls the episode at once; the unedited
// roll-out stays beside it. The controls of the rules are built once for a model and then kept up
// to date, so that a slider can be moved while answers come.
import { actionLine } from "./actions.js";
import { frozen, isKnown } from "./api.js";
import { forceFields, placeFields } from "./atstep.js";
import { ruleName, ruleTag, swatch } from "./colours.js";
import { metricRows } from "./difference.js";
import { byId, el, field, fill, number, para, row } from "./dom.js";
import { addToRule, isEdited, listEdits, scaleRule, switchRule } from "./edits.js";
import { timeLink } from "./goto.js";
import { saveFields } from "./save.js";
import { asked, canRedo, canUndo, changeEdits, model, redo, session, undo } from "./session.js";
import { on, state } from "./state.js";

const parts = {};
let updates = [];
let builtFor = null;
let sliding = null; // the slider that is being moved

export function startWhatIf(node) {
  for (const name of ["edited", "rules", "step", "actions", "save"]) {
    parts[name] = el("section", { class: name });
    node.append(parts[name]);
  }
  on("play edits tab", renewWhatIf);
  on("time select", renewStep);
  on("busy", tellTook);
  on("models", () => { builtFor = null; });
}

function renewWhatIf() {
  if (state.tab !== "whatif" || !session.play) return;
  if (builtFor !== model()) buildRules();
  tellEdits();
  for (const update of updates) update();
  renewStep();
}

function renewStep() {
  if (state.tab !== "whatif" || !session.play) return;
  fill(parts.step, state.t < session.play.steps
    ? [el("h3", { text: `At step ${state.t}` }), forceFields(), placeFields()] : []);
  fill(parts.actions, actionLine());
}

// -- what was changed, and what it did -------------------------------------------------------

function tellEdits() {
  const { play, base } = session;
  const chips = listEdits(state.edits, model(), play).map(({ text, rule, step, rest }) =>
    el("span", { class: "chip edit" },
      rule === null || rule < 0 ? null : swatch(rule),
      el("span", { text: step === null ? text : `${text}, step ${step}` }),
      el("button", {
        class: "plain", "aria-label": `Take back: ${text}`, text: "×",
        onclick: () => changeEdits(rest),
      })));
  const tool = (text, able, onclick) =>
    el("button", { "data-key": text, text, disabled: !able, onclick });
  fill(
    parts.edited,
    chips.length ? el("div", { class: "chips" }, chips) : para(hint(), "lead"),
    chips.length && base ? effect(play, base) : null,
    el("div", { class: "tools" }, tool("Undo", canUndo(), undo), tool("Redo", canRedo(), redo),
      tool("Clear", isEdited(state.edits), () => changeEdits({}))),
  );
}

function hint() {
  const { actions, drags, rules } = model();
  const acts = actions.length && session.play.actions ? "Change an action" : "Set a feature of a slot";
  const drag = drags ? " Or drag a slot in the predicted frame." : "";
  return `${rules.length ? "Switch a rule off" : acts}, and see another future beside this one.${drag}`;
}

/** The difference in the metric. */
function effect(play, base) {
  const rows = metricRows(base, play).map(([name, before, after]) =>
    row(name, before, "→", el("b", { text: after })));
  const at = play.firstDifference ?? play.firstChange;
  const text = play.firstDifference === null ? "The same pictures; the encodings differ from "
    : "Differs from ";
  const parted = at === null ? "The roll-out stays the same"
    : [text, timeLink("first", `frame ${at}`, at)];
  return el("div", { class: "effect" }, el("h4", { text: play.errorName }),
    el("table", { class: "numbers" }, rows),
    el("p", { class: "soft parting" }, parted, " · ", el("span", { id: "took", text: tookText() })));
}

function tookText() {
  if (session.busy) return "Rolling out…";
  return session.took === null ? "" : `Rolled out in ${Math.max(1, Math.round(session.took))} ms.`;
}

function tellTook() {
  const line = byId("took");
  if (line) line.textContent = tookText();
}

// -- rules ------------------------------------------------------------------------------------

function buildRules() {
  builtFor = model();
  const rows = model().rules.map((_, rule) => ruleRow(rule));
  const save = saveFields();
  updates = [...rows.map((row) => row.update), save.update];
  fill(parts.rules, rows.length ? el("h3", { text: "Rules" })
    : para("This model has no rules to switch or force."),
  rows.map((row) => row.node));
  fill(parts.save, save.node);
}

function ruleRow(rule) {
  const name = ruleName(model(), rule);
  const toggle = el("input", {
    type: "checkbox", class: "switch", role: "switch", "aria-label": `${name} on`,
    "data-rule": rule, onclick: (event) => event.stopPropagation(),
    onchange: () => changeEdits(switchRule(state.edits, rule, !toggle.checked)),
  });
  const uses = el("span", { class: "soft uses" });
  const scale = scaleField(rule, name);
  const bias = biasField(rule);
  const node = el("details", { class: "rule-row" },
    el("summary", {}, ruleTag(model(), rule), uses, toggle),
    el("div", { class: "fields" }, scale.node, bias.node));
  let opened = false;
  const update = () => {
    toggle.checked = !(state.edits.disabled ?? []).includes(rule);
    const edits = switchRule(state.edits, rule, toggle.checked);
    toggle.disabled = !isKnown("/api/play", { ...asked(), edits });
    node.classList.toggle("off", !toggle.checked);
    const plays = [session.base ?? session.play, session.play];
    const [before, after] = plays.map((play) => countUses(play, rule));
    uses.textContent = before === after ? `${after} ×` : `${before} → ${after} ×`;
    const edited = scale.update() | bias.update();
    if (edited && !opened) node.open = opened = true;
  };
  return { node, update };
}

function countUses(play, rule) {
  return play.ruleData?.filter((fired) => fired === rule).length ?? 0;
}

function scaleField(rule, name) {
  const what = `scale ${rule}`;
  const factor = el("output");
  const slider = el("input", {
    type: "range", min: 0, max: 2, step: 0.05, "aria-label": `Factor on what ${name} adds`,
    disabled: frozen, onchange: () => { sliding = null; },
    oninput: () => {
      // While it moves, one entry of the history.
      const same = sliding === what;
      sliding = what;
      changeEdits(scaleRule(state.edits, rule, Number(slider.value)), same);
    },
  });
  const update = () => {
    const value = (state.edits.scaled ?? []).find((entry) => entry.rule === rule)?.factor ?? 1;
    if (sliding !== what) slider.value = value;
    factor.textContent = `× ${number(value)}`;
    return value !== 1;
  };
  return { node: field("strength", slider, factor), update };
}

function biasField(rule) {
  const options = model().features.map((text) => el("option", { text }));
  const feature = el("select", {
    "aria-label": "Feature that the rule adds to", onchange: () => update(),
  }, options);
  const amount = el("input", {
    type: "number", step: "any", "aria-label": "Amount that the rule adds", disabled: frozen,
    onchange: () => changeEdits(addToRule(state.edits, rule, feature.value, Number(amount.value))),
  });
  const update = () => {
    const added = (state.edits.added ?? []).filter((entry) => entry.rule === rule);
    const entry = added.find((one) => one.feature === feature.value);
    if (document.activeElement !== amount) amount.value = entry?.amount ?? 0;
    return added.length > 0;
  };
  return { node: field("add to", feature, amount), update };
}
