// The lane of the metric: a curve of each playback, crosses where a frame is wrong, and a line
// where an edited roll-out, or an imagination, becomes another one.
import { visibleSteps } from "./cells.js";
import { themeColour } from "./colours.js";
import { number } from "./dom.js";
import { comparableErrors } from "./session.js";

/** The metric of each frame; grey and dashed without edits, orange of another model. */
export function errorLane(play, base, other) {
  const curves = [
    { play: base, colour: "ghost", dash: [4, 3], name: "unedited" },
    { play: other, colour: "second", dash: [], name: "other" },
    { play, colour: "accent", dash: [], name: "edited" },
  ].filter((curve) => curve.play);
  const apart = other && !comparableErrors();
  const shared = rangeOf(curves.filter((curve) => !apart || curve.play === play));
  const own = apart ? rangeOf(curves.filter((curve) => curve.play === other)) : shared;
  return {
    label: play.errorName, height: 58, frames: true, note: shared ? number(shared.top) : "",
    draw(context, box) {
      const [inner, floor] = [box.height - 18, box.y + box.height - 8];
      const scaled = (range) => (value) => {
        const { bottom, top } = range ?? { bottom: 0, top: 1 };
        return floor - ((value - bottom) / (top - bottom || 1)) * inner;
      };
      const yOf = scaled(shared);
      const ownY = scaled(own);
      context.strokeStyle = themeColour("line");
      context.lineWidth = 1;
      context.beginPath();
      context.moveTo(box.x, Math.round(yOf(shared?.bottom ?? 0)) + 0.5);
      context.lineTo(box.x + box.width, Math.round(yOf(shared?.bottom ?? 0)) + 0.5);
      context.stroke();
      for (const curve of curves) drawCurve(context, box, curve, curve.play === other ? ownY : yOf);
      if (other?.right) drawWrong(context, box, other, ownY);
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

/** From 0, or below it, to the largest value; null if no value is known. */
function rangeOf(curves) {
  const values = curves.flatMap((curve) => curve.play.error).filter((x) => x !== null);
  if (!values.length) return null;
  const some = spread(values);
  return { bottom: Math.min(0, ...some), top: Math.max(...some) };
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
  const at = play.firstDifference ?? play.firstChange ?? play.parted?.step ?? null;
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
  const text = play.parted ? "they part here" : play.firstDifference === null
    ? "encodings differ from here" : "differs from here";
  const left = x + 4 + context.measureText(text).width > box.x + box.width;
  context.textAlign = left ? "right" : "left";
  context.fillText(text, left ? x - 4 : x + 4, box.y + 5);
  context.textAlign = "left";
}
