// Two playbacks of the same episode: which of their rules mean the same, and where they differ.
// An edited run has the rules of the run that it came from. Rules of other runs have no common
// order: they are matched by how often they fire together.
import { number } from "./dom.js";
import { CellImage } from "./raster.js";

/** The rule that fired on a slot in the last stage of a step that changed it, or -1. */
function lastRule(play, step, slot) {
  for (let stage = play.stages - 1; stage >= 0; stage -= 1) {
    const rule = play.ruleAt(step, stage, slot);
    if (rule >= 0) return rule;
  }
  return -1;
}

const sum = (values) => values.reduce((total, value) => total + value, 0);

function mean(values) {
  const known = values.filter((value) => value !== null);
  return known.length ? sum(known) / known.length : null;
}

/** The steps and slots that both have. */
function* common(one, other) {
  const [steps, slots] = [Math.min(one.steps, other.steps), Math.min(one.slots, other.slots)];
  for (let step = 0; step < steps; step += 1) {
    for (let slot = 0; slot < slots; slot += 1) yield [step, slot];
  }
}

/**
 * For each rule of `other` the rule of `one` that it is paired with, or -1. Only rules that fire
 * together more often than by chance are paired: one that always fires goes with every other.
 */
export function matchRules(one, other, sameRules) {
  if (sameRules) return Array.from({ length: other.rules }, (_, rule) => rule);
  const together = Array.from({ length: other.rules }, () => new Array(one.rules).fill(0));
  for (const [step, slot] of common(one, other)) {
    const [a, b] = [lastRule(one, step, slot), lastRule(other, step, slot)];
    if (a >= 0 && b >= 0) together[b][a] += 1;
  }
  const ofOther = together.map(sum);
  const ofOne = Array.from({ length: one.rules }, (_, a) => sum(together.map((row) => row[a])));
  const all = sum(ofOther);
  const pairs = together.flatMap((row, b) => row.map((count, a) => ({ a, b, count })))
    .filter(({ a, b, count }) => count * all > ofOne[a] * ofOther[b]);
  pairs.sort((x, y) => y.count - x.count || x.b - y.b || x.a - y.a);
  const match = new Array(other.rules).fill(-1);
  for (const { a, b } of pairs) {
    if (match[b] < 0 && !match.includes(a)) match[b] = a;
  }
  return match;
}

export const DIFFERENCES = [
  "neither fires", "the same rule", "different rules", "only the first fires",
  "only the second fires",
];

/** What two playbacks do at a step and slot: an index into DIFFERENCES. */
export function differenceAt(one, other, match, step, slot) {
  const [a, b] = [lastRule(one, step, slot), lastRule(other, step, slot)];
  if (a < 0 && b < 0) return 0;
  if (b < 0) return 3;
  if (a < 0) return 4;
  return match[b] === a ? 1 : 2;
}

export function differenceImage(one, other, match, colours) {
  const steps = Math.min(one.steps, other.steps);
  const slots = Math.min(one.slots, other.slots);
  return new CellImage(steps, slots, (step, slot) =>
    colours[differenceAt(one, other, match, step, slot)]);
}

/** The metric of both as rows of a table: of what, of one, of the other. */
export function metricRows(one, two, oneUnit = true) {
  const both = (name, measure) => [name, measure(one), measure(two)];
  const rows = oneUnit ? [
    both("mean", (play) => number(mean(play.error.slice(1)))),
    both("last frame", (play) => number(play.error.at(-1))),
  ] : [];
  if (one.right && two.right) {
    rows.push(both(`frames right, of ${two.steps}`, (play) => sum(play.right.slice(1))));
  }
  return rows;
}

/** Counts of each kind of difference. */
export function countDifferences(one, other, match) {
  const counts = DIFFERENCES.map(() => 0);
  for (const [step, slot] of common(one, other)) {
    counts[differenceAt(one, other, match, step, slot)] += 1;
  }
  return counts;
}
