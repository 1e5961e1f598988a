// "Why": the choice of a rule for one slot at one step: what it won against, by how much, what the
// rule read and added, and the smallest change of the slot that would have changed the choice.
import { ask } from "./api.js";
import { ruleName, ruleTag } from "./colours.js";
import { el, fill, indexed, menu, number, para, percent } from "./dom.js";
import { forceChoice, isEdited, switchRule } from "./edits.js";
import { isPlaying } from "./player.js";
import { changes, contextsOf, readOf, scoresOf } from "./scores.js";
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
    if (question !== canonical(body)) return;
    fill(panel, picker(play, body), para(error.message, "note"));
  }
}

function noRules(play) {
  const slot = state.slot ?? 0;
  return [
    para("This model has no rules, so there is no choice to explain.", "lead"),
    section(`What ${play.slotNames[slot]} holds at frame ${state.t}`, featureList(play, slot)),
  ];
}

function featureList(play, slot) {
  const rows = play.featureNames.slice(0, 16).map((name, i) => el(
    "tr", {}, el("th", { text: name }),
    el("td", { text: number(play.featureAt(state.t, slot, i)) }),
  ));
  return el("table", { class: "numbers" }, rows);
}

function section(title, ...children) {
  return el("section", {}, el("h3", { text: title }), ...children);
}

/** Which slot (and stage) is explained. */
function picker(play, { step, stage, slot }) {
  const slots = menu("Slot", indexed(play.slotNames), {
    "data-key": "why slot", value: slot,
    onchange: (event) => select(Number(event.target.value), stage),
  });
  const parts = [el("span", { text: `Step ${step}` }), slots];
  if (play.stages > 1) {
    const stages = Array.from({ length: play.stages }, (_, k) => [k, `stage ${k}`]);
    parts.push(menu("Stage", stages, {
      "data-key": "why stage", value: stage,
      onchange: (event) => select(slot, Number(event.target.value)),
    }));
  }
  return el("div", { class: "picker" }, parts);
}

function explanation(play, why) {
  return [
    picker(play, why),
    verdict(play, why),
    tools(play, why),
    why.flip ? section("The smallest change that flips it", ...flipOf(play, why)) : null,
    section(why.kind === "sequential" ? "Scores of slots and rules"
      : `Scores of the rules on ${play.slotNames[why.slot]}`, ...scoresOf(play, why)),
    why.contexts ? section(why.chooser === null ? "Which slot it read" : "Which slot it changes",
      contextsOf(play, why)) : null,
    why.fired ? section("What it read, and what it added", ...readOf(play, why)) : null,
  ].filter((part) => part !== null);
}

function verdict(play, why) {
  const { winner, rival } = why;
  const line = el("p", { class: "lead" });
  if (why.fired) {
    line.append(ruleTag(model(), why.rule), ` fired on ${play.slotNames[why.slot]}`);
    if (why.chooser !== null) line.append(`, chosen by ${play.slotNames[why.chooser]}`);
    else if (why.context >= 0) {
      const itself = why.context === why.slot;
      line.append(`, reading ${itself ? "itself" : play.slotNames[why.context]}`);
    }
    line.append(why.forced ? ", as you forced it." : ".");
  } else {
    line.append(`Nothing fired on ${play.slotNames[why.slot]} here.`);
    if (why.kind === "sequential" && winner && winner.rule >= 0) {
      line.append(" This stage went to ", ruleTag(model(), winner.rule));
      line.append(why.chooser === null ? ` on ${play.slotNames[winner.slot]}.` : ".");
    }
  }
  const more = el("p", { class: "soft" });
  if (rival && why.margin !== null) {
    const same = why.chooser !== null || why.kind === "parallel";
    const against = rival.rule < 0 ? "nothing firing"
      : ruleName(model(), rival.rule) + (same ? "" : ` on ${play.slotNames[rival.slot]}`);
    more.append("It won over ", el("b", { text: against }), ` by ${number(why.margin)}`);
    more.append(` (${number(winner.score)} against ${number(rival.score)}).`);
  }
  return el("div", {}, line, more.childNodes.length ? more : null);
}

function flipOf(play, { flip, slot, chooser }) {
  const to = flip.rule < 0 ? el("b", { text: "nothing fires" })
    : el("span", {}, ruleTag(model(), flip.rule), chooser === null ? ` fires on ${play.slotNames[flip.slot]}` : " fires");
  const text = el("p", {});
  const share = el("b", { text: percent(flip.relative) });
  text.append(`Change ${play.slotNames[chooser ?? slot]} by `, share, " of its size, and ", to, " instead.");
  const read = Object.values(flip.features ?? {}).some((change) => Math.abs(change) > 1e-6);
  return [text, read ? changes(flip.features)
    : para("The change is in numbers that none of the features shows.")];
}

/** From here to "What if". */
function tools(play, { step, stage, slot, fired, rule, flip, kind, chooser }) {
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
        state.edits, {
          step, stage, slot: chooser === null ? flip.slot : slot, rule: flip.rule, context: null,
        },
        kind === "sequential",
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
