// The tables of "Why": scores of rules and slots, changes of features, what a rule read and added.
import { ruleColour, ruleName, ruleTag, swatch } from "./colours.js";
import { bar, deviation, el, number, para, row, signed } from "./dom.js";
import { model } from "./session.js";

/** Changes of features as bars around the middle, the largest first. */
export function changes(features, colour) {
  const entries = Object.entries(features ?? {});
  entries.sort(([, a], [, b]) => Math.abs(b) - Math.abs(a));
  const most = Math.max(1e-12, ...entries.map(([, change]) => Math.abs(change)));
  const rows = entries.slice(0, 6).map(([feature, change]) =>
    row(feature, deviation(change / most, colour), signed(change)));
  return el("table", { class: "numbers" }, rows);
}

export function scoresOf(play, why) {
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
    head: ruleTag(model(), rule), score, colour: ruleColour(rule),
    chosen: why.fired && rule === why.rule,
  })));
}

function levels(rows) {
  const [low, high] = extent(rows.map((each) => each.score));
  const share = (score) => (high > low ? 0.04 + (0.96 * (score - low)) / (high - low) : 1);
  const list = rows.map(({ head, score, colour, chosen, off }) => {
    const line = row(head, Number.isFinite(score) ? bar(share(score), colour) : "", number(score));
    line.className = chosen ? "chosen" : off ? "off" : "";
    return line;
  });
  return el("table", { class: "numbers levels" }, list);
}

/** The least and the largest of the scores that are allowed. */
function extent(scores) {
  const known = scores.filter(Number.isFinite);
  return [Math.min(...known), Math.max(...known)];
}

/** The competition of sequential NPS: every pair of slot and rule. */
function matrix(play, why) {
  const [low, high] = extent(why.scores.flat());
  const roomy = why.scores[0].length <= 6;
  const is = (pair, slot, rule) => pair?.slot === slot && pair.rule === rule;
  const head = el("tr", {}, el("td"), why.scores[0].map((_, rule) =>
    el("th", { title: ruleName(model(), rule) }, swatch(rule))));
  // A slot that may choose no rule has no scores.
  const slots = [...why.scores.keys()].filter((slot) => why.scores[slot].some(Number.isFinite));
  if (!slots.length) return para("No slot could choose a rule: all of them are empty here.");
  const rows = slots.map((slot) => el("tr", {},
    el("th", { text: play.slotNames[slot] }),
    why.scores[slot].map((score, rule) => {
      const share = Number.isFinite(score) ? (score - low) / (high - low || 1) : 0;
      const kind = is(why.winner, slot, rule) ? "winner" : is(why.rival, slot, rule) ? "rival" : "";
      const text = `${ruleName(model(), rule)} on ${play.slotNames[slot]}: ${number(score)}`;
      const cell = el("td", {
        class: `cell ${kind} ${share > 0.72 ? "dark" : ""}`,
        title: kind ? `${text} (${kind})` : text,
        text: roomy ? number(score, 2) : "",
      });
      cell.style.setProperty("--share", share);
      return cell;
    })));
  const table = el("table", { class: `matrix ${roomy ? "" : "small"}` }, head, rows);
  return el("div", { class: "scroll" }, table);
}

export function contextsOf(play, why) {
  return levels(why.contexts.map((score, slot) => ({
    head: play.slotNames[slot], score: why.context_allowed[slot] ? score : null,
    off: !why.context_allowed[slot], chosen: slot === (why.chooser === null ? why.context : why.slot),
    colour: "var(--soft)",
  })));
}

export function readOf(play, { read, added, slot, context, rule, pictures }) {
  const names = Object.keys(read.primary).slice(0, 16);
  const most = Math.max(1e-12, ...names.map((name) => Math.abs(added.features[name] ?? 0)));
  const other = read.context && context !== slot;
  const head = el("tr", {}, el("td"), el("th", { text: play.slotNames[slot] }),
    other ? el("th", { text: play.slotNames[context] }) : null, el("th", { text: "added" }),
    el("td"));
  const rows = names.map((name) => {
    const change = added.features[name] ?? 0;
    return row(name, number(read.primary[name]), ...(other ? [number(read.context[name])] : []),
      signed(change), deviation(change / most, ruleColour(rule)));
  });
  const parts = [el("table", { class: "numbers" }, head, rows)];
  if (pictures) {
    parts.push(el("div", { class: "pair" }, small(pictures.before, "before"), "→",
      small(pictures.after, "after"), pictures.added ? small(pictures.added, "difference") : null));
    parts.push(para(pictures.added ? "Difference: orange is lighter, blue is darker."
      : "Both look the same: what it added is not drawn yet."));
  }
  parts.push(para(`Size of what it added: ${number(added.norm)}. ${model().reading}`));
  return parts;
}

function small(source, text) {
  if (!source) return el("span", { class: "soft", text: "–" });
  const image = el("img", { src: source, alt: `The slot alone, ${text}` });
  return el("figure", { class: "small" }, image, el("figcaption", { text }));
}
