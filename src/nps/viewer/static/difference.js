// Two playbacks of the same episode: which of their rules mean the same, and where they differ.
// Rules of different runs have no common order: they are matched by how often they fire together.
import { CellImage } from "./raster.js";

/** The rule that fired on a slot in the last stage of a step that changed it, or -1. */
function lastRule(play, step, slot) {
  for (let stage = play.stages - 1; stage >= 0; stage -= 1) {
    const rule = play.ruleAt(step, stage, slot);
    if (rule >= 0) return rule;
  }
  return -1;
}

/** For each rule of `other` the rule of `one` that it is paired with, or -1. */
export function matchRules(one, other) {
  const together = Array.from({ length: other.rules }, () => new Array(one.rules).fill(0));
  for (let step = 0; step < Math.min(one.steps, other.steps); step += 1) {
    for (let slot = 0; slot < Math.min(one.slots, other.slots); slot += 1) {
      const [a, b] = [lastRule(one, step, slot), lastRule(other, step, slot)];
      if (a >= 0 && b >= 0) together[b][a] += 1;
    }
  }
  const pairs = together.flatMap((row, b) => row.map((count, a) => ({ a, b, count })));
  pairs.sort((x, y) => y.count - x.count || x.b - y.b || x.a - y.a);
  const match = new Array(other.rules).fill(-1);
  for (const { a, b, count } of pairs) {
    if (count > 0 && match[b] < 0 && !match.includes(a)) match[b] = a;
  }
  return match;
}

export const DIFFERENCES = ["neither", "same", "different", "only one", "only other"];

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

/** Counts of each kind of difference, and of frames that either alone predicts rightly. */
export function countDifferences(one, other, match) {
  const counts = [0, 0, 0, 0, 0];
  const steps = Math.min(one.steps, other.steps);
  for (let step = 0; step < steps; step += 1) {
    for (let slot = 0; slot < Math.min(one.slots, other.slots); slot += 1) {
      counts[differenceAt(one, other, match, step, slot)] += 1;
    }
  }
  return counts;
}
