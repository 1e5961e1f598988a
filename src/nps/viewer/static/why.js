// "Why": the choice of a rule for one slot at one step: what it won against, by how much, what the
// rule read and added, and the smallest change of the slot that would have changed the choice.
import { ask } from "./api.js";
import { ruleName, ruleTag } from "./colours.js";
import { el, fill, number, para, percent, row, section } from "./dom.js";
import { forceChoice, isEdited, switchRule } from "./edits.js";
import { slotMenu, stageMenu } from "./goto.js";
import { firings } from "./playback.js";
import { isPlaying } from "./player.js";
import { changes, contextsOf, readOf, scoresOf } from "./scores.js";
import { changeEdits, model, session, setTime, shown } from "./session.js";
import { canonical, on, state } from "./state.js";

const MOST_ANSWERS = 300;
const answers = new Map();
let panel = null;
let question = "";
let waiting = 0;

export function startWhy(node) {
  panel = node;
  on("play time select tab paused models", later);
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
  const fired = firings(play, step);
  const slot = state.slot ?? fired[0]?.slot ?? 0;
  // With several stages, a slot is explained where something happened to it.
  const stage = state.stage || (fired.find((each) => each.slot === slot)?.stage ?? 0);
  return { step, stage, slot };
}

async function showWhy() {
  const { play } = session;
  if (!play || state.tab !== "why" || shown() !== play) return;
  if (!play.hasRules) {
    fill(panel, noRules(play));
    return;
  }
  const body = { play: play.id, ...subject(play) };
  const key = canonical(body);
  question = key;
  let parts;
  try {
    if (!answers.has(key)) answers.set(key, await ask("/api/why", body));
    if (answers.size > MOST_ANSWERS) answers.delete(answers.keys().next().value);
    parts = explanation(play, answers.get(key));
  } catch (error) {
    parts = [picker(play, body), para(error.message, "note")];
  }
  if (question === key) fill(panel, parts); // else another one was asked since
}

function noRules(play) {
  const slot = state.slot ?? 0;
  return [
    para("This model has no rules, so there is no choice to explain.", "lead"),
    section(`What ${play.slotNames[slot]} holds at frame ${state.t}`, featureList(play, slot)),
  ];
}

function featureList(play, slot) {
  const rows = play.featureNames.slice(0, 16).map((name, i) =>
    row(name, number(play.featureAt(state.t, slot, i))));
  return el("table", { class: "numbers" }, rows);
}

/** Which slot (and stage) is explained. */
function picker(play, { step, stage, slot }) {
  return el("div", { class: "picker" }, el("span", { text: `Step ${step}` }),
    slotMenu(play, "why", slot, stage),
    play.stages > 1 ? stageMenu(play, "why", slot, stage) : null);
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
  ];
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
  const where = chooser === null ? ` on ${play.slotNames[flip.slot]}` : "";
  const to = flip.rule < 0 ? el("b", { text: "nothing fires" })
    : el("span", {}, ruleTag(model(), flip.rule), ` fires${where}`);
  const text = el("p", {}, `Change ${play.slotNames[chooser ?? slot]} by `,
    el("b", { text: percent(flip.relative) }), " of its size, and ", to, " instead.");
  const read = Object.values(flip.features ?? {}).some((change) => Math.abs(change) > 1e-6);
  return [text, read ? changes(flip.features)
    : para("The change is in numbers that none of the features shows.")];
}

/** From here to "What if". */
function tools(play, { step, stage, slot, fired, rule, flip, kind, chooser }) {
  const tool = (key, text, onclick) => el("button", { "data-key": `why ${key}`, text, onclick });
  const first = isEdited(state.edits) ? play.firstDifference : null;
  const off = () => changeEdits(switchRule(state.edits, rule, true));
  const force = () => {
    const on = chooser === null ? flip.slot : slot;
    const choice = { step, stage, slot: on, rule: flip.rule, context: null };
    changeEdits(forceChoice(state.edits, choice, kind === "sequential"));
  };
  const elsewhere = flip && chooser === null && flip.slot !== slot;
  const where = elsewhere ? `on ${play.slotNames[flip.slot]}` : "here";
  return el("div", { class: "tools" },
    fired ? tool("off", `Switch ${ruleName(model(), rule)} off`, off) : null,
    flip?.rule >= 0 ? tool("force", `Force ${ruleName(model(), flip.rule)} ${where}`, force) : null,
    first === null ? null
      : tool("first", `To the first difference (frame ${first})`, () => setTime(first)));
}
