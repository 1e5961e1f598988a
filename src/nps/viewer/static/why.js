// "Why": the choice of a rule for one slot at one step: what it won against, by how much, what the
// rule read and added, and the smallest change of the slot that would have changed the choice.
import { ask } from "./api.js";
import { ruleColour, ruleName, ruleTag, swatch } from "./colours.js";
import { bar, deviation, el, fill, number, percent, signed } from "./dom.js";
import { forceChoice, isEdited, switchRule } from "./edits.js";
import { isPlaying } from "./player.js";
import { changeEdits, model, select, session, setTime, shown } from "./session.js";
import { canonical, on, state } from "./state.js";

const MOST_ANSWERS = 300;
const answers = new Map();
let panel = null;
let question = "";
let waiting = 0;

export function startWhy(node) {
  panel = node;
  for (const event of ["play", "select", "tab", "paused", "models"]) on(event, later);
  on("time", later);
}

/** After the last of a row of changes, so that scrubbing stays free of questions. */
function later() {
  if (state.tab !== "why" || isPlaying()) return;
  clearTimeout(waiting);
  waiting = setTimeout(showWhy, 90);
}

/** The chosen slot, else the first on which a rule fires in this step. */
function subject(play) {
  const step = Math.min(state.t, play.steps - 1);
  if (state.slot !== null) {
    let { stage } = state;
    // With several stages, a chosen slot is explained where something happened to it.
    if (play.ruleAt(step, stage, state.slot) < 0 && !state.stage) {
      for (let k = 0; k < play.stages; k += 1) {
        if (play.ruleAt(step, k, state.slot) >= 0) { stage = k; break; }
      }
    }
    return { step, stage, slot: state.slot };
  }
  for (let stage = 0; stage < play.stages; stage += 1) {
    for (let slot = 0; slot < play.slots; slot += 1) {
      if (play.ruleAt(step, stage, slot) >= 0) return { step, stage, slot };
    }
  }
  return { step, stage: 0, slot: 0 };
}

async function showWhy() {
  const { play } = session;
  if (!play || state.tab !== "why" || shown() !== play) return;
  if (!play.hasRules) {
    fill(panel, noRules(play));
    return;
  }
  const body = { play: play.id, ...subject(play) };
  question = canonical(body);
  try {
    if (!answers.has(question)) {
      const key = question;
      const answer = await ask("/api/why", body);
      answers.set(key, answer);
      if (answers.size > MOST_ANSWERS) answers.delete(answers.keys().next().value);
      if (key !== question) return; // another question was question since
    }
    fill(panel, explanation(play, answers.get(question)));
  } catch (error) {
    if (question === canonical(body)) fill(panel, picker(play, body), el("p", { class: "note", text: error.message }));
  }
}

function noRules(play) {
  const slot = state.slot ?? 0;
  return [
    el("p", { class: "lead", text: "This model has no rules, so there is no choice to explain." }),
    section(`What ${play.slotNames[slot]} holds at frame ${state.t}`, featureList(play, slot)),
  ];
}

function featureList(play, slot) {
  const rows = play.featureNames.slice(0, 16).map((name, i) =>
    el("tr", {}, el("th", { text: name }), el("td", { text: number(play.featureAt(state.t, slot, i)) })));
  return el("table", { class: "numbers" }, rows);
}

function section(title, ...children) {
  return el("section", {}, el("h3", { text: title }), ...children);
}

/** Which slot (and stage) is explained. */
function picker(play, { step, stage, slot }) {
  const slots = el("select", {
    "aria-label": "Slot", "data-key": "why slot",
    onchange: (event) => select(Number(event.target.value), stage),
  }, play.slotNames.map((name, i) => el("option", { value: i, text: name })));
  slots.value = slot;
  const parts = [el("span", { text: `Step ${step}` }), slots];
  if (play.stages > 1) {
    const stages = el("select", {
      "aria-label": "Stage", "data-key": "why stage",
      onchange: (event) => select(slot, Number(event.target.value)),
    }, Array.from({ length: play.stages }, (_, k) => el("option", { value: k, text: `stage ${k}` })));
    stages.value = stage;
    parts.push(stages);
  }
  return el("div", { class: "picker" }, parts);
}

function explanation(play, why) {
  const name = (slot) => play.slotNames[slot];
  return [
    picker(play, why),
    verdict(play, why),
    why.flip ? section("The smallest change that flips it", ...flipOf(play, why)) : null,
    section(why.kind === "sequential" ? "Scores of every slot and rule" : `Scores of the rules on ${name(why.slot)}`,
      ...scoresOf(play, why)),
    why.contexts ? section("Which slot it read", contextsOf(play, why)) : null,
    why.fired ? section("What it read, and what it added", ...readOf(play, why)) : null,
    tools(play, why),
  ].filter((part) => part !== null);
}

function verdict(play, why) {
  const { winner, rival } = why;
  const line = el("p", { class: "lead" });
  if (why.fired) {
    line.append(ruleTag(model(), why.rule), ` fired on ${play.slotNames[why.slot]}`);
    if (why.context >= 0) {
      line.append(why.context === why.slot ? ", reading itself" : `, reading ${play.slotNames[why.context]}`);
    }
    line.append(why.forced ? ", as you forced it." : ".");
  } else {
    line.append(`Nothing fired on ${play.slotNames[why.slot]} here.`);
    if (why.kind === "sequential" && winner && winner.rule >= 0) {
      line.append(" This stage went to ", ruleTag(model(), winner.rule), ` on ${play.slotNames[winner.slot]}.`);
    }
  }
  const more = el("p", { class: "soft" });
  if (rival && why.margin !== null) {
    const against = rival.rule < 0 ? "nothing firing"
      : `${ruleName(model(), rival.rule)} on ${play.slotNames[rival.slot]}`;
    more.append("It won over ", el("b", { text: against }), ` by ${number(why.margin)}`);
    more.append(` (${number(winner.score)} against ${number(rival.score)}).`);
  }
  return el("div", {}, line, more.childNodes.length ? more : null);
}

function flipOf(play, { flip, slot }) {
  const to = flip.rule < 0 ? el("b", { text: "nothing fires" })
    : el("span", {}, ruleTag(model(), flip.rule), ` fires on ${play.slotNames[flip.slot]}`);
  const text = el("p", {});
  text.append(`Change ${play.slotNames[slot]} by `, el("b", { text: percent(flip.relative) }), " of its size, and ", to, " instead.");
  const read = Object.values(flip.features ?? {}).some((change) => Math.abs(change) > 1e-6);
  return [text, read ? changes(flip.features)
    : el("p", { class: "soft", text: "The change is in numbers that none of the features shows." })];
}

/** Changes of features as bars around the middle, the largest first. */
function changes(features, colour) {
  const entries = Object.entries(features ?? {});
  entries.sort(([, a], [, b]) => Math.abs(b) - Math.abs(a));
  const most = Math.max(1e-12, ...entries.map(([, change]) => Math.abs(change)));
  const rows = entries.slice(0, 6).map(([feature, change]) => el("tr", {},
    el("th", { text: feature }),
    el("td", { class: "wide" }, deviation(change / most, colour)),
    el("td", { text: signed(change) })));
  return el("table", { class: "numbers" }, rows);
}

function scoresOf(play, why) {
  const parts = [why.kind === "sequential" ? matrix(play, why) : bars(why.scores[why.slot], why)];
  if (why.bids) {
    const [rules, nothing] = why.bids;
    const rows = [["a rule", rules, "accent"], ["nothing", nothing, "soft"]];
    parts.push(el("h4", { text: "A rule, or nothing?" }), levels(rows.map(([text, score]) => ({
      head: text, score, chosen: score === Math.max(rules, nothing ?? -Infinity),
    }))));
  }
  return parts;
}

/** Rules on one slot, the best first. */
function bars(scores, why) {
  const order = scores.map((score, rule) => ({ score, rule })).sort((a, b) => b.score - a.score);
  return levels(order.map(({ score, rule }) => ({
    head: ruleTag(model(), rule), score, colour: ruleColour(rule), chosen: why.fired && rule === why.rule,
  })));
}

function levels(rows) {
  const known = rows.filter((row) => Number.isFinite(row.score));
  const [low, high] = [Math.min(...known.map((r) => r.score)), Math.max(...known.map((r) => r.score))];
  const list = rows.map(({ head, score, colour, chosen, off }) => el("tr", { class: chosen ? "chosen" : off ? "off" : "" },
    el("th", {}, head),
    el("td", { class: "wide" }, Number.isFinite(score) ? bar(0.04 + (0.96 * (score - low)) / (high - low || 1), colour) : ""),
    el("td", { text: number(score) })));
  return el("table", { class: "numbers levels" }, list);
}

/** The competition of sequential NPS: every pair of slot and rule. */
function matrix(play, why) {
  const all = why.scores.flat().filter((score) => Number.isFinite(score));
  const [low, high] = [Math.min(...all), Math.max(...all)];
  const roomy = why.scores[0].length <= 6;
  const is = (pair, slot, rule) => pair && pair.slot === slot && pair.rule === rule;
  const head = el("tr", {}, el("td"), why.scores[0].map((_, rule) =>
    el("th", { title: ruleName(model(), rule) }, swatch(rule))));
  const rows = why.scores.map((row, slot) => el("tr", {},
    el("th", { text: play.slotNames[slot] }),
    row.map((score, rule) => {
      const share = Number.isFinite(score) ? (score - low) / (high - low || 1) : 0;
      const kind = is(why.winner, slot, rule) ? "winner" : is(why.rival, slot, rule) ? "rival" : "";
      const text = `${ruleName(model(), rule)} on ${play.slotNames[slot]}: ${number(score)}`;
      const cell = el("td", {
        class: `cell ${kind} ${share > 0.72 ? "dark" : ""}`, title: kind ? `${text} (${kind})` : text,
        text: roomy ? number(score, 2) : "",
      });
      cell.style.setProperty("--share", share);
      return cell;
    })));
  return el("div", { class: "scroll" }, el("table", { class: `matrix ${roomy ? "" : "small"}` }, head, rows));
}

function contextsOf(play, why) {
  return levels(why.contexts.map((score, slot) => ({
    head: play.slotNames[slot], score: why.context_allowed[slot] ? score : null,
    off: !why.context_allowed[slot], chosen: slot === why.context, colour: "var(--soft)",
  })));
}

function readOf(play, { read, added, slot, context, rule, pictures }) {
  const names = Object.keys(read.primary).slice(0, 16);
  const most = Math.max(1e-12, ...names.map((name) => Math.abs(added.features[name] ?? 0)));
  const other = read.context && context !== slot;
  const head = el("tr", {}, el("td"), el("th", { text: play.slotNames[slot] }),
    other ? el("th", { text: play.slotNames[context] }) : null, el("th", { text: "added" }), el("td"));
  const rows = names.map((name) => el("tr", {},
    el("th", { text: name }), el("td", { text: number(read.primary[name]) }),
    other ? el("td", { text: number(read.context[name]) }) : null,
    el("td", { text: signed(added.features[name] ?? 0) }),
    el("td", { class: "wide" }, deviation((added.features[name] ?? 0) / most, ruleColour(rule)))));
  const parts = [el("table", { class: "numbers" }, head, rows)];
  if (pictures && (pictures.before || pictures.after)) {
    parts.push(el("div", { class: "pair" }, small(pictures.before, "before"), el("span", { text: "→" }), small(pictures.after, "after")));
  }
  parts.push(el("p", { class: "soft", text: `Size of what it added: ${number(added.norm)}.` }));
  return parts;
}

function small(source, text) {
  if (!source) return el("span", { class: "soft", text: "–" });
  return el("figure", { class: "small" }, el("img", { src: source, alt: `The slot alone, ${text}` }), el("figcaption", { text }));
}

/** From here to "What if". */
function tools(play, { step, stage, slot, fired, rule, flip, kind }) {
  const buttons = [];
  if (fired) {
    buttons.push(el("button", {
      "data-key": "why off", text: `Switch ${ruleName(model(), rule)} off`,
      onclick: () => changeEdits(switchRule(state.edits, rule, true)),
    }));
  }
  if (flip && flip.rule >= 0) {
    buttons.push(el("button", {
      "data-key": "why force", text: `Force ${ruleName(model(), flip.rule)} here`,
      onclick: () => changeEdits(forceChoice(
        state.edits, { step, stage, slot: flip.slot, rule: flip.rule, context: null }, kind === "sequential",
      )),
    }));
  }
  if (isEdited(state.edits) && session.play.firstDifference !== null) {
    buttons.push(el("button", {
      "data-key": "why first", text: `To the first difference (frame ${play.firstDifference})`,
      onclick: () => setTime(play.firstDifference),
    }));
  }
  return el("div", { class: "tools" }, buttons);
}
