// "Rules": what each rule is called, how often it is used, when it fires, what it does, which rules
// are like it, and with which actions or events it goes.
import { ask, isFrozen } from "./api.js";
import { ruleColour, ruleName, ruleTag, swatch } from "./colours.js";
import { bar, el, fill, number, para, percent, say } from "./dom.js";
import { model, session } from "./session.js";
import { emit, on, state } from "./state.js";

const described = new Map(); // model → answer
const KEPT_NAMES = "This model ships with nps and cannot be changed. Save as a new run (in What if) "
  + "to name its rules.";
let rulesPanel = null;

export function startRules(node) {
  rulesPanel = node;
  for (const event of ["tab", "play"]) on(event, showRules);
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
    model().shipped && !isFrozen() ? para(KEPT_NAMES) : null,
    used.map(card),
    idle.length ? el("p", { class: "soft idle" }, "Never: ",
      idle.map(({ rule }) => ruleTag(model(), rule))) : null,
  );
}

function card(rule) {
  const parts = [head(rule), el("div", { class: "share" }, bar(rule.share, ruleColour(rule.rule)),
    el("span", { text: `${percent(rule.share)}, ${rule.uses} ×` }))];
  if (rule.does) parts.push(fact("does", does(rule.does)));
  if (rule.when) parts.push(fact("when", when(rule.when)));
  for (const [kind, shares] of Object.entries(rule.by ?? {})) {
    parts.push(fact(kind, byShare(shares, rule.rule)));
  }
  const close = (rule.relatives ?? []).slice(0, 3);
  if (close.length) {
    parts.push(fact("like", el("div", { class: "chips" }, close.map(({ rule: other, similarity }) =>
      el("span", { class: "rule-tag", title: `similarity ${number(similarity)}` }, swatch(other),
        el("span", { text: `${ruleName(model(), other)} ${number(similarity, 2)}` }))))));
  }
  return el("article", { class: "rule-card", "data-rule": rule.rule }, parts);
}

function fact(name, content) {
  return el("div", { class: "fact" }, el("h4", { text: name }), el("div", {}, content));
}

function does({ sentence, r2, linear }) {
  const told = linear || sentence.includes("not linear") ? "" : "not linear, ";
  const fit = r2 === null ? "" : `${told}R² ${number(r2)}`;
  return [el("p", { text: sentence }), fit ? para(fit) : null];
}

function when({ tree, accuracy, chance }) {
  return [
    el("pre", { text: tree.join("\n") }),
    para(`right in ${percent(accuracy)} of held-out cases, by chance ${percent(chance)}`),
  ];
}

function byShare(shares, rule) {
  const entries = Object.entries(shares).sort(([, a], [, b]) => b - a).slice(0, 5);
  return el("table", { class: "numbers" }, entries.map(([name, share]) => el("tr", {},
    el("th", { text: name || "none" }), el("td", { class: "wide" }, bar(share, ruleColour(rule))),
    el("td", { text: percent(share) }))));
}

// -- names ------------------------------------------------------------------------------------

function head({ rule }) {
  const name = ruleName(model(), rule);
  if (!model().renames || isFrozen()) return el("h3", {}, ruleTag(model(), rule));
  const field = el("input", {
    class: "name", type: "text", value: name, maxlength: 60, "aria-label": `Name of rule ${rule}`,
    "data-key": `name ${rule}`, onchange: () => rename(rule, field),
    onkeydown: (event) => {
      if (event.key === "Enter") field.blur();
      if (event.key === "Escape") { field.value = name; field.blur(); }
    },
  });
  return el("h3", {}, swatch(rule), field);
}

async function rename(rule, field) {
  const name = field.value.trim();
  if (!name || name === ruleName(model(), rule)) {
    field.value = ruleName(model(), rule);
    return;
  }
  try {
    model().rules = (await ask("/api/rename", { model: model().id, rule, name })).rules;
    described.delete(model().id); // sentences may name it
    say(`Saved: rule ${rule} is “${name}”`);
    emit("models");
    showRules();
  } catch (error) {
    field.value = ruleName(model(), rule);
    say(error.message, "error");
  }
}
