// The lanes of rules: cells of steps and slots, numbered and hatched where there is room, with a
// corner where an edit changed the choice; and the lane of the difference between two models.
import { VARIANTS, ruleInk, ruleName, ruleVariant, themeColour } from "./colours.js";
import { DIFFERENCES, differenceAt, differenceImage, matchRules } from "./difference.js";
import { ruleImage } from "./raster.js";
import { sameRules } from "./session.js";

const images = new WeakMap(); // playback → its image, with the number of steps it was made for

function imageOf(play) {
  const found = images.get(play);
  if (found?.steps === play.steps) return found.image;
  const image = ruleImage(play);
  images.set(play, { image, steps: play.steps });
  return image;
}

/** The steps that a box shows, whole ones: from, to. */
export function visibleSteps(box, steps) {
  return [Math.max(0, Math.floor(box.from)), Math.min(steps, Math.ceil(box.to))];
}

function rowHeight(slots) {
  return slots <= 7 ? 24 : slots <= 12 ? 19 : slots <= 20 ? 13 : 9;
}

export function rasterLane(play, base, model, selects) {
  const image = imageOf(play);
  const each = rowHeight(play.slots);
  const same = base?.hasRules && base.stages === play.stages ? base : null;
  return {
    rows: play.slotNames, height: each * play.slots, image, selects,
    draw(context, box) {
      const cell = box.step / play.stages;
      context.fillStyle = themeColour("null");
      context.fillRect(box.x, box.y, box.width, box.height);
      image.draw(
        context, box.from * play.stages, box.to * play.stages, box.x, box.y, box.width, box.height,
      );
      drawCells(context, box, play, same, cell, each);
      drawGrid(context, box, play, cell, each);
    },
    tell({ step, stage, row }) {
      if (row >= play.slots || step >= play.steps) return "";
      const rule = play.ruleAt(step, stage, row);
      const context = play.contextAt(step, stage, row);
      const where = play.stages > 1 ? `step ${step}, stage ${stage}` : `step ${step}`;
      const reads = rule >= 0 && context >= 0 ? `, reading ${play.slotNames[context]}` : "";
      return `${where}: ${ruleName(model, rule)} on ${play.slotNames[row]}${reads}`;
    },
  };
}

/** Numbers and hatching where there is room, and a corner where an edit changed the choice. */
function drawCells(context, box, play, base, cell, each) {
  if (cell < 6) return;
  const [first, last] = visibleSteps(box, play.steps);
  const written = cell >= 15 && each >= 13;
  context.textAlign = "center";
  context.font = `600 ${each >= 19 ? 11 : 10}px system-ui, sans-serif`;
  for (let step = first; step < last; step += 1) {
    for (let stage = 0; stage < play.stages; stage += 1) {
      const x = box.xOf(step + stage / play.stages);
      for (let slot = 0; slot < play.slots; slot += 1) {
        const y = box.y + slot * each;
        const rule = play.ruleAt(step, stage, slot);
        if (rule >= 8) hatch(context, x, y, cell, each, rule);
        if (rule >= 0 && written) {
          context.fillStyle = ruleInk(rule);
          context.fillText(rule, x + cell / 2, y + each / 2 + 0.5);
        }
        if (step < base?.steps && base.ruleAt(step, stage, slot) !== rule) {
          corner(context, x, y, cell);
        }
      }
    }
  }
}

function corner(context, x, y, cell) {
  const size = Math.min(7, cell * 0.6);
  context.fillStyle = themeColour("ink");
  context.beginPath();
  context.moveTo(x + cell, y);
  context.lineTo(x + cell - size, y);
  context.lineTo(x + cell, y + size);
  context.fill();
}

function hatch(context, x, y, width, height, rule) {
  const variant = VARIANTS[ruleVariant(rule)];
  context.save();
  context.beginPath();
  context.rect(x, y, width, height);
  context.clip();
  context.strokeStyle = ruleInk(rule);
  context.globalAlpha = 0.35;
  context.lineWidth = 1;
  context.beginPath();
  const [from, to] = variant === "rising" ? [y + height, y] : [y, y + height];
  for (let at = -height; at < width + height; at += 5) {
    context.moveTo(...(variant === "level" ? [x, y + at] : [x + at, from]));
    context.lineTo(...(variant === "level" ? [x + width, y + at] : [x + at + height, to]));
  }
  context.stroke();
  context.restore();
}

function drawGrid(context, box, play, cell, each) {
  context.fillStyle = themeColour("card");
  for (let slot = 1; slot < play.slots; slot += 1) {
    context.fillRect(box.x, box.y + slot * each - 0.5, box.width, 1);
  }
  if (cell < 5) return;
  const [first, last] = visibleSteps(box, play.steps);
  for (let step = first; step <= last; step += 1) {
    const between = play.stages > 1 && box.step > 12 ? 3 : 1;
    context.fillRect(box.xOf(step) - between / 2, box.y, between, box.height);
    for (let stage = 1; stage < play.stages; stage += 1) {
      context.fillRect(box.xOf(step + stage / play.stages) - 0.5, box.y, 1, box.height);
    }
  }
}

export function differenceLane(play, other) {
  const match = matchRules(play, other, sameRules());
  const colours = ["null", "same", "wrong", "accent", "second"].map((name) =>
    [...rgbOf(themeColour(name)), 255]);
  const image = differenceImage(play, other, match, colours);
  const each = Math.min(18, rowHeight(play.slots));
  return {
    rows: play.slotNames, height: each * play.slots,
    draw(context, box) {
      image.draw(context, box.from, box.to, box.x, box.y, box.width, box.height);
      drawGrid(context, box, { steps: play.steps, slots: play.slots, stages: 1 }, box.step, each);
    },
    tell({ step, row }) {
      if (row >= play.slots) return "";
      const kind = DIFFERENCES[differenceAt(play, other, match, step, row)];
      return `step ${step}, ${play.slotNames[row]}: ${kind}`;
    },
  };
}

function rgbOf(colour) {
  const hex = colour.replace("#", "");
  return [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16));
}
