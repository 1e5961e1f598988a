// The lane of the metric: a curve of each playback, crosses where a frame is wrong, and a line
// where an edited roll-out, or an imagination, becomes another one.
import { pen, stroke } from "./canvas.js";
import { visibleSteps } from "./cells.js";
import { clamp, number } from "./dom.js";
import { comparableErrors } from "./session.js";

/** The metric of each frame; grey and dashed without edits, orange of another model. */
export function errorLane(play, base, other) {
  const curves = [
    { play: base, colour: "ghost", dash: [4, 3], name: "unedited" },
    { play: other, colour: "second", name: "other" },
    { play, colour: "accent", name: "edited" },
  ].filter((curve) => curve.play);
  const apart = other && !comparableErrors();
  const shared = rangeOf(curves.filter((curve) => !apart || curve.play === play));
  const own = apart ? rangeOf(curves.filter((curve) => curve.play === other)) : shared;
  return {
    label: play.errorName, brief: "error", height: 58, frames: true,
    note: shared ? number(shared.top) : "",
    draw(context, box) {
      const [inner, floor] = [box.height - 18, box.y + box.height - 8];
      const scaled = (range) => (value) => {
        const { bottom, top } = range ?? { bottom: 0, top: 1 };
        return floor - ((value - bottom) / (top - bottom || 1)) * inner;
      };
      const yOf = scaled(shared);
      const ownY = scaled(own);
      const ground = Math.round(yOf(shared?.bottom ?? 0)) + 0.5;
      stroke(context, "line", 1, [[[box.x, ground], [box.x + box.width, ground]]]);
      for (const curve of curves) drawCurve(context, box, curve, curve.play === other ? ownY : yOf);
      if (other?.right) drawWrong(context, box, other, ownY);
      if (play.right) drawWrong(context, box, play, yOf);
      drawParting(context, box, play);
    },
    tell({ exact }) {
      const t = clamp(Math.round(exact), 0, play.steps);
      const parts = curves.map((curve) => {
        const value = curve.play.error[t];
        return curves.length > 1 ? `${curve.name} ${number(value)}` : number(value);
      });
      const verdict = play.right ? (play.right[t] ? ", right" : ", wrong") : "";
      return `frame ${t}: ${play.errorName} ${parts.reverse().join(", ")}${verdict}`;
    },
  };
}

/** From 0, or below it, to the largest value; null if no value is known. */
function rangeOf(curves) {
  const values = curves.flatMap((curve) => curve.play.error).filter((x) => x !== null);
  if (!values.length) return null;
  return {
    bottom: values.reduce((least, value) => Math.min(least, value), 0),
    top: values.reduce((most, value) => Math.max(most, value)),
  };
}

function drawCurve(context, box, { play, colour, dash }, yOf) {
  const [first, last] = visibleSteps(box, play.steps);
  const lines = [[]];
  for (let t = Math.max(0, first - 1); t <= Math.min(play.steps, last + 1); t += 1) {
    if (play.error[t] === null) lines.push([]); // a gap
    else lines.at(-1).push([box.xOf(t), yOf(play.error[t])]);
  }
  stroke(context, colour, 1.75, lines, dash);
}

function drawWrong(context, box, play, yOf) {
  const [first, last] = visibleSteps(box, play.steps);
  const arm = clamp(box.step / 3, 1.5, 3.5);
  const lines = [];
  for (let t = first; t <= last; t += 1) {
    if (play.right[t] !== false) continue;
    const [x, y] = [box.xOf(t), yOf(play.error[t] ?? 0)];
    lines.push([[x - arm, y - arm], [x + arm, y + arm]], [[x - arm, y + arm], [x + arm, y - arm]]);
  }
  stroke(context, "wrong", 1.75, lines);
}

/** From where an edited roll-out, or an imagination, is another one. */
function drawParting(context, box, play) {
  const at = play.firstDifference ?? play.firstChange ?? play.parted?.step ?? null;
  if (at === null) return;
  const x = Math.round(box.xOf(at)) + 0.5;
  stroke(context, "soft", 1, [[[x, box.y], [x, box.y + box.height]]], [2, 3]);
  pen(context, "soft", "10px");
  const text = play.parted ? "they part here" : play.firstDifference === null
    ? "encodings differ from here" : "differs from here";
  const left = x + 4 + context.measureText(text).width > box.x + box.width;
  context.textAlign = left ? "right" : "left";
  context.fillText(text, left ? x - 4 : x + 4, box.y + 5);
}
