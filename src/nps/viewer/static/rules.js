// "Rules": what each rule is called, how often it is used, when it fires, what it does, which rules
// are like it, and with which actions or events it goes.
import { ask, frozen } from "./api.js";
import { ruleColour, ruleName, ruleTag, swatch } from "./colours.js";
import { bar, el, fill, number, para, percent, row, say } from "./dom.js";
import { model, session } from "./session.js";
import { emit, on, state } from "./state.js";

const described = new Map(); // model → answer
let rulesPanel = null;
const [LIKE, OPPOSITE] = [0.2, -0.5]; // similarities, as in the descriptions

export function startRules(node) {
  rulesPanel = node;
  on("tab play", showRules);
}

async function showRules() {
  if (state.tab !== "rules" || !session.play) return;
  if (!model().rules.length) {
    fill(rulesPanel, para("This model has no rules.", "lead"));
    return;
  }
  const id = model().id;
  if (!described.has(id)) {
    fill(rulesPanel, para("Watching the rules over many episodes…", "soft waiting"));
    try {
      described.set(id, await ask("/api/rules", { model: id }));
    } catch (error) {
      fill(rulesPanel, para(error.message, "note"));
      return;
    }
  }
  if (state.tab === "rules" && model().id === id) drawRules(described.get(id));
}

function drawRules({ rules, episodes }) {
  const sorted = [...rules].sort((a, b) => b.uses - a.uses);
  const used = sorted.filter((rule) => rule.uses > 0);
  const idle = sorted.filter((rule) => rule.uses === 0);
  const times = used.reduce((sum, rule) => sum + rule.uses, 0);
  const fired = `${used.length} of ${rules.length} rules fired`;
  fill(
    rulesPanel,
    para(`${fired}, ${times} times in ${episodes} episodes.`, "lead"),
    naming(),
    used.map(card),
    idle.length ? el("p", { class: "soft idle" }, "Never: ",
      idle.map(({ rule }) => ruleTag(model(), rule))) : null,
    model().reading ? para(model().reading) : null,
  );
}

/** Models that ship are not changed. */
function naming() {
  if (model().renames || !model().saves || frozen) return null;
  return para("To name its rules, change one in What if and save the model as a new run.");
}

function card(rule) {
  const parts = [head(rule), el("div", { class: "share" }, bar(rule.share, ruleColour(rule.rule)),
    el("span", { text: `${percent(rule.share)}, ${rule.uses} ×` }))];
  if (rule.does) parts.push(fact("does", does(rule.does)));
  if (rule.when) parts.push(fact("when", when(rule.when)));
  for (const [kind, shares] of Object.entries(rule.by ?? {})) {
    parts.push(fact(kind, byShare(shares, rule.rule)));
  }
  const all = rule.relatives ?? [];
  parts.push(relatives("like", all.filter(({ similarity }) => similarity >= LIKE)));
  parts.push(relatives("opposite of", all.filter(({ similarity }) => similarity <= OPPOSITE)));
  return el("article", { class: "rule-card", "data-rule": rule.rule }, parts);
}

/** Rules that add the same to the same slots, or the contrary. */
function relatives(name, some) {
  if (!some.length) return null;
  return fact(name, el("div", { class: "chips" }, some.slice(0, 3).map(({ rule, similarity }) =>
    el("span", { class: "rule-tag" }, ruleTag(model(), rule),
      el("span", { class: "soft", text: `similarity ${number(similarity)}` })))));
}

function fact(name, content) {
  return el("div", { class: "fact" }, el("h4", { text: name }), el("div", {}, content));
}

function does({ sentence, r2, linear }) {
  const fit = r2 === null ? null : `R² of a linear law ${number(r2)}`;
  return [el("p", { text: sentence }), linear && fit ? para(fit) : null];
}

function when({ tree, accuracy, chance }) {
  return [
    el("ul", { class: "tree" }, tree.map(branch)),
    // Of what always fires there is nothing to tell apart.
    accuracy === chance ? null
      : para(`right in ${percent(accuracy)} of held-out cases, by chance ${percent(chance)}`),
  ];
}

/** A line of the tree: a question, and the answer if it ends there. */
function branch(line) {
  const depth = line.search(/\S/) / 2;
  const [, question, answer, cases] = line.match(/^ *(.*?):?(?: (fires|does not) \((.*)\))?$/);
  const node = el("li", { class: answer === "fires" ? "fires" : "" },
    el("span", { text: question }),
    answer ? el("b", { text: answer, title: cases }) : null);
  node.style.setProperty("--depth", depth);
  return node;
}

function byShare(shares, rule) {
  const entries = Object.entries(shares).sort(([, a], [, b]) => b - a).slice(0, 5);
  return el("table", { class: "numbers" }, entries.map(([name, share]) =>
    row(name || "none", bar(share, ruleColour(rule)), percent(share))));
}

// -- names ------------------------------------------------------------------------------------

function head({ rule }) {
  const name = ruleName(model(), rule);
  if (!model().renames || frozen) return el("h3", {}, ruleTag(model(), rule));
  const field = el("input", {
    class: "name", type: "text", value: name, maxlength: 60, "aria-label": `Name of rule ${rule}`,
    "data-key": `name ${rule}`, onchange: () => rename(rule, name, field),
    onkeydown: (event) => {
      if (event.key === "Enter") field.blur();
      if (event.key === "Escape") { field.value = name; field.blur(); }
    },
  });
  return el("h3", {}, swatch(rule), field);
}

async function rename(rule, before, field) {
  const name = field.value.trim();
  if (!name || name === before) {
    field.value = before;
    return;
  }
  try {
    model().rules = (await ask("/api/rename", { model: model().id, rule, name })).rules;
    described.delete(model().id); // sentences may name it
    say(`Saved: rule ${rule} is “${name}”`);
    emit("models");
    showRules();
  } catch (error) {
    field.value = before;
    say(error.message, "error");
  }
}
