// "Compare": a second model on the same episode and the same clock, with where they differ.
import { isKnown } from "./api.js";
import { ruleTag } from "./colours.js";
import { countDifferences, matchRules, metricRows } from "./difference.js";
import { el, field, fill, menu, para, percent, row, section } from "./dom.js";
import { timeLink } from "./goto.js";
import { asked, comparableErrors, compareWith, model, otherModel } from "./session.js";
import { sameRules, session, shortTitles } from "./session.js";
import { on, state } from "./state.js";

const OTHER_EPISODE = "These models do not show the same episode: they were trained on different "
  + "data, so there is nothing to lay side by side.";

let comparePanel = null;

export function startCompare(node) {
  comparePanel = node;
  on("tab play", showCompare);
}

function showCompare() {
  if (state.tab !== "compare" || !session.play) return;
  const able = ({ id }) => id !== state.model
    && isKnown("/api/play", { ...asked(), model: id, edits: {} });
  const others = session.models.filter(able).map(({ id, title }) => [id, title]);
  if (!others.length) {
    fill(comparePanel, para("One model is open. To compare, open two: ", "lead"),
      el("pre", { text: "nps view RUN OTHER-RUN" }));
    return;
  }
  const choice = menu("Other model", [["", "choose…"], ...others], {
    "data-key": "with", value: state.with ?? "", onpick: compareWith,
  });
  const { play, other } = session;
  const parts = [el("div", { class: "fields" }, field("with", choice))];
  if (other && other.same !== play.same) {
    parts.push(para(OTHER_EPISODE, "note"));
  } else if (other) {
    parts.push(scoreTable(play, other), whereTheyPart(play, other), ...provisos(play));
    if (play.hasRules && other.hasRules) parts.push(...rulesCompared(play, other));
    else if (play.hasRules !== other.hasRules) {
      const without = play.hasRules ? otherModel() : model();
      parts.push(para(`${without.title} has no rules: only its predictions are compared.`));
    }
  }
  fill(comparePanel, parts);
}

function scoreTable(play, other) {
  const together = comparableErrors();
  const heads = shortTitles().map((title, i) =>
    el("th", {}, el("i", { class: `line ${["one", "two"][i]}` }), title));
  return el("table", { class: "numbers versus" },
    el("tr", {}, el("td", { class: "soft", text: together ? play.errorName : "" }), heads),
    metricRows(play, other, together).map((cells) => row(...cells)));
}

/** What has to be known before the two are judged. */
function provisos(play) {
  const found = [];
  for (const each of [model(), otherModel()]) {
    if (each.edited) found.push(para(`${each.title}: ${each.edited}.`));
    if (each.training) found.push(para(`${each.title}: ${each.training}.`, "note"));
  }
  if (!comparableErrors()) {
    found.push(para(`${play.errorName}: each model has encodings of its own, so these numbers are `
      + "not compared, and each curve has its own scale."));
  }
  return found;
}

/** The first frame that one predicts rightly and the other does not. */
function whereTheyPart(play, other) {
  if (!play.right || !other.right) return null;
  const at = play.right.findIndex((right, t) => right !== other.right[t]);
  if (at < 0) return para("Both are right on the same frames.");
  const better = play.right[at] ? model() : otherModel();
  return el("p", {}, "From ", timeLink("part", `frame ${at}`, at),
    ` on only ${better.title} is right.`);
}

function rulesCompared(play, other) {
  const match = matchRules(play, other, sameRules());
  const [, same, different, one, two] = countDifferences(play, other, match);
  const all = same + different + one + two;
  const share = (count) => percent(all ? count / all : 0);
  const key = (kind, text, count) => el("li", {}, el("i", { class: `cellkey ${kind}` }),
    `${text}: ${share(count)}`);
  const [first, second] = shortTitles();
  return [
    section("Difference", el("ul", { class: "legend" },
      key("same", "the same rule", same), key("different", "different rules", different),
      key("one", `only ${first} fires`, one), key("two", `only ${second} fires`, two))),
    section("Rules that mean the same", ...pairing(match)),
  ];
}

function pairing(match) {
  if (sameRules()) return [para("All of them, one by one: one run is an edit of the other.")];
  const pairs = match.map((a, b) => ({ a, b })).filter(({ a }) => a >= 0);
  if (!pairs.length) return [para("None fire together more often than by chance.")];
  return [para("Paired by how often they fire together in this episode."),
    el("ul", { class: "pairs" }, pairs.map(({ a, b }) =>
      el("li", {}, ruleTag(model(), a), "↔", ruleTag(otherModel(), b))))];
}
