// The lanes of the time line. A lane has a height, a label or rows, and draws itself into a box that
// knows which steps it spans; `tell` says what is under the pointer.
import { VARIANTS, ruleInk, ruleName, ruleVariant, themeColour } from "./colours.js";
import { DIFFERENCES, differenceAt, differenceImage, matchRules } from "./difference.js";
import { fitted, number } from "./dom.js";
import { ruleImage } from "./raster.js";
import { comparing, model as currentModel, otherModel, session } from "./session.js";

const images = new WeakMap(); // playback → its image, with the number of steps it was made for

function imageOf(play) {
  const found = images.get(play);
  if (found?.steps === play.steps) return found.image;
  const image = ruleImage(play);
  images.set(play, { image, steps: play.steps });
  return image;
}

const ROOM = 26; // pixels of a step from which on words fit into it

/** The lanes of a playback when a step has so many pixels. */
export function lanesOf(play, step) {
  const model = currentModel();
  const other = comparing() ? session.other : null;
  const base = play === session.world || other ? null : session.base;
  const lanes = [];
  if (play.actions?.length && model.actions.length && step >= ROOM) lanes.push(actionLane(play, base, model));
  if (play.events.some((event) => event)) lanes.push(eventLane(play));
  lanes.push(errorLane(play, base, other));
  if (play.hasRules) lanes.push(rasterLane(play, base, model, true));
  if (other?.hasRules) {
    lanes.push(headingLane(otherModel().title));
    lanes.push(rasterLane(other, null, otherModel(), false));
    if (play.hasRules) {
      lanes.push(headingLane("Difference"));
      lanes.push(differenceLane(play, other));
    }
  }
  lanes.push(axisLane(play));
  return lanes;
}

function visibleSteps(box, steps) {
  return [Math.max(0, Math.floor(box.from)), Math.min(steps, Math.ceil(box.to))];
}

function actionLane(play, base, model) {
  const name = (step) => model.actions[play.actions[step]] ?? "";
  const twoLines = model.actions.some((text) => text.includes(" ") && text.length > 5);
  return {
    label: "action", height: twoLines ? 38 : 26,
    draw(context, box) {
      const [first, last] = visibleSteps(box, play.steps);
      context.textAlign = "center";
      context.font = "11px system-ui, sans-serif";
      for (let step = first; step < last; step += 1) {
        const x = box.xOf(step);
        const changed = base?.actions && base.actions[step] !== play.actions[step];
        context.fillStyle = themeColour(changed ? "accent-soft" : "wash");
        context.beginPath();
        context.roundRect(x + 1, box.y, box.step - 2, box.height - 5, 5);
        context.fill();
        context.fillStyle = themeColour(changed ? "accent" : "soft");
        const lines = wrapped(context, name(step), box.step - 6, twoLines);
        lines.forEach((line, i) => {
          const y = box.y + (box.height - 5) / 2 + (i - (lines.length - 1) / 2) * 13;
          context.fillText(line, x + box.step / 2, y + 0.5);
        });
      }
      context.textAlign = "left";
    },
    tell: ({ step }) => `step ${step}: ${name(step)}`,
  };
}

/** What tells actions apart is mostly their last word: it gets a line of its own. */
function wrapped(context, text, width, twoLines) {
  const cut = text.lastIndexOf(" ");
  if (!twoLines || cut < 0 || context.measureText(text).width <= width) {
    return [fitted(context, text, width)];
  }
  return [fitted(context, text.slice(0, cut), width), fitted(context, text.slice(cut + 1), width)];
}

/** What truly happened: in words where there is room, else a dot wherever it was not the usual. */
function eventLane(play) {
  const usual = commonest(play.events);
  return {
    label: "truly", height: 20,
    draw(context, box) {
      const [first, last] = visibleSteps(box, play.steps);
      const y = box.y + box.height / 2;
      context.font = "11px system-ui, sans-serif";
      context.fillStyle = themeColour("ink");
      for (let step = first; step < last; step += 1) {
        const text = play.events[step];
        if (!text) continue;
        const x = box.xOf(step);
        if (box.step >= 40) context.fillText(fitted(context, text, box.step - 8), x + 4, y);
        else if (text !== usual) {
          context.fillRect(x + box.step / 2 - 2, y - 2, Math.min(4, box.step + 0.5), 4);
        }
      }
    },
    tell: ({ step }) => (play.events[step] ? `step ${step}: ${play.events[step]}` : ""),
  };
}

/** What most steps have in common; nothing if there is no such event. */
function commonest(events) {
  const counts = new Map();
  for (const event of events) counts.set(event, (counts.get(event) ?? 0) + 1);
  const [[event, most]] = [...counts].sort((a, b) => b[1] - a[1]);
  return most > events.length / 3 ? event : null;
}

/** The metric of each frame; grey and dashed without edits, orange of another model. */
function errorLane(play, base, other) {
  const curves = [
    { play: base, colour: "ghost", dash: [4, 3], name: "unedited" },
    { play: other, colour: "second", dash: [], name: "other" },
    { play, colour: "accent", dash: [], name: "edited" },
  ].filter((curve) => curve.play);
  const values = curves.flatMap((curve) => curve.play.error).filter((x) => x !== null);
  const top = values.length ? Math.max(...spread(values)) : 1;
  const bottom = values.length ? Math.min(0, ...spread(values)) : 0;
  const range = top - bottom || 1;
  return {
    label: play.errorName, height: 58, frames: true, note: values.length ? number(top) : "",
    draw(context, box) {
      const [inner, floor] = [box.height - 18, box.y + box.height - 8];
      const yOf = (value) => floor - ((value - bottom) / range) * inner;
      context.strokeStyle = themeColour("line");
      context.lineWidth = 1;
      context.beginPath();
      context.moveTo(box.x, Math.round(yOf(bottom)) + 0.5);
      context.lineTo(box.x + box.width, Math.round(yOf(bottom)) + 0.5);
      context.stroke();
      for (const curve of curves) drawCurve(context, box, curve, yOf);
      if (play.right) drawWrong(context, box, play, yOf);
      drawParting(context, box, play);
      context.fillStyle = themeColour("faint");
      context.font = "10px system-ui, sans-serif";
    },
    tell({ exact }) {
      const t = Math.max(0, Math.min(play.steps, Math.round(exact)));
      const parts = curves.map((curve) => {
        const value = curve.play.error[t];
        return curves.length > 1 ? `${curve.name} ${number(value)}` : number(value);
      });
      const verdict = play.right ? (play.right[t] ? ", right" : ", wrong") : "";
      return `frame ${t}: ${play.errorName} ${parts.reverse().join(", ")}${verdict}`;
    },
  };
}

/** Of very many values only some are given to Math.max, which takes them as arguments. */
function spread(values) {
  if (values.length < 50000) return values;
  const chunks = [];
  for (let i = 0; i < values.length; i += 10000) {
    const part = values.slice(i, i + 10000);
    chunks.push(Math.max(...part), Math.min(...part));
  }
  return chunks;
}

function drawCurve(context, box, { play, colour, dash }, yOf) {
  const [first, last] = visibleSteps(box, play.steps);
  context.strokeStyle = themeColour(colour);
  context.lineWidth = 1.75;
  context.setLineDash(dash);
  context.lineJoin = "round";
  context.beginPath();
  let pen = false;
  for (let t = Math.max(0, first - 1); t <= Math.min(play.steps, last + 1); t += 1) {
    const value = play.error[t];
    if (value === null) {
      pen = false;
      continue;
    }
    if (pen) context.lineTo(box.xOf(t), yOf(value));
    else context.moveTo(box.xOf(t), yOf(value));
    pen = true;
  }
  context.stroke();
  context.setLineDash([]);
}

function drawWrong(context, box, play, yOf) {
  const [first, last] = visibleSteps(box, play.steps);
  context.strokeStyle = themeColour("wrong");
  context.lineWidth = 1.75;
  const arm = Math.max(1.5, Math.min(3.5, box.step / 3));
  context.beginPath();
  for (let t = first; t <= last; t += 1) {
    if (play.right[t] !== false) continue;
    const [x, y] = [box.xOf(t), play.error[t] === null ? yOf(0) : yOf(play.error[t])];
    context.moveTo(x - arm, y - arm);
    context.lineTo(x + arm, y + arm);
    context.moveTo(x - arm, y + arm);
    context.lineTo(x + arm, y - arm);
  }
  context.stroke();
}

/** From where an edited roll-out, or an imagination, is another one. */
function drawParting(context, box, play) {
  const at = play.firstDifference ?? play.parted?.step ?? null;
  if (at === null) return;
  const x = Math.round(box.xOf(at)) + 0.5;
  context.strokeStyle = themeColour("soft");
  context.lineWidth = 1;
  context.setLineDash([2, 3]);
  context.beginPath();
  context.moveTo(x, box.y);
  context.lineTo(x, box.y + box.height);
  context.stroke();
  context.setLineDash([]);
  context.fillStyle = themeColour("soft");
  context.font = "10px system-ui, sans-serif";
  const text = play.firstDifference === null ? "they part here" : "differs from here";
  const left = x + 4 + context.measureText(text).width > box.x + box.width;
  context.textAlign = left ? "right" : "left";
  context.fillText(text, left ? x - 4 : x + 4, box.y + 5);
  context.textAlign = "left";
}

function rowHeight(slots) {
  return slots <= 7 ? 24 : slots <= 12 ? 19 : slots <= 20 ? 13 : 9;
}

function rasterLane(play, base, model, selects) {
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
        const known = base && step < base.steps;
        if (known && base.ruleAt(step, stage, slot) !== rule) corner(context, x, y, cell);
      }
    }
  }
  context.textAlign = "left";
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
  for (let at = -height; at < width + height; at += 5) {
    if (variant === "rising") {
      context.moveTo(x + at, y + height);
      context.lineTo(x + at + height, y);
    } else if (variant === "falling") {
      context.moveTo(x + at, y);
      context.lineTo(x + at + height, y + height);
    } else {
      context.moveTo(x, y + at);
      context.lineTo(x + width, y + at);
    }
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

function headingLane(text) {
  return {
    label: "", height: 26,
    draw(context, box) {
      context.fillStyle = themeColour("soft");
      context.font = "600 12px system-ui, sans-serif";
      context.fillText(fitted(context, text, box.width), box.x, box.y + box.height / 2 + 3);
    },
  };
}

function differenceLane(play, other) {
  const match = matchRules(play, other);
  const colours = ["null", "same", "wrong", "accent", "second"].map((name) =>
    [...rgbOf(themeColour(name)), 255]);
  const image = differenceImage(play, other, match, colours);
  const each = Math.min(18, rowHeight(play.slots));
  return {
    rows: play.slotNames, height: each * play.slots,
    draw(context, box) {
      image.draw(context, box.from, box.to, box.x, box.y, box.width, box.height);
      drawGrid(context, box, { ...shape(play), stages: 1 }, box.step, each);
    },
    tell({ step, row }) {
      if (row >= play.slots) return "";
      const kind = DIFFERENCES[differenceAt(play, other, match, step, row)];
      const said = { neither: "neither fires", same: "the same rule", different: "different rules",
        "only one": "only the first fires", "only other": "only the second fires" };
      return `step ${step}, ${play.slotNames[row]}: ${said[kind]}`;
    },
  };
}

function shape({ steps, slots }) {
  return { steps, slots };
}

function rgbOf(colour) {
  const hex = colour.replace("#", "");
  return [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

function axisLane(play) {
  return {
    label: "step", height: 20,
    draw(context, box) {
      const [first, last] = visibleSteps(box, play.steps);
      const nice = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];
      const every = nice.find((one) => one * box.step >= 34) ?? 2000;
      context.fillStyle = themeColour("faint");
      context.font = "10px system-ui, sans-serif";
      context.textAlign = "center";
      for (let t = Math.ceil(first / every) * every; t <= last; t += every) {
        const x = box.xOf(t);
        if (x < box.x - 1 || x > box.x + box.width + 1) continue;
        context.fillText(t, Math.min(x, box.x + box.width - 2), box.y + box.height / 2 + 2);
      }
      context.textAlign = "left";
    },
  };
}
