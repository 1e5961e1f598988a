// Small helpers to draw on a canvas, in the colours of the style sheet.
import { themeColour } from "./colours.js";

/** The context of a canvas as large as it is shown, in CSS pixels. */
export function sharp(canvas, width, height) {
  const scale = window.devicePixelRatio || 1;
  const [w, h] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== w) canvas.width = w;
  if (canvas.height !== h) canvas.height = h;
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

/** Choose what is written with: "600 12px" is bold. */
export function pen(context, colour, font) {
  context.fillStyle = themeColour(colour);
  context.font = `${font} system-ui, sans-serif`;
}

/** Stroke the path that is made of lines, each a list of points. */
export function stroke(context, colour, width, lines, dash = []) {
  context.strokeStyle = themeColour(colour);
  context.lineWidth = width;
  context.lineJoin = "round";
  context.setLineDash(dash);
  context.beginPath();
  for (const line of lines) {
    line.forEach(([x, y], i) => (i ? context.lineTo(x, y) : context.moveTo(x, y)));
  }
  context.stroke();
}

/** Text as far as it fits. */
export function fitted(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let end = text.length;
  while (end > 1 && context.measureText(`${text.slice(0, end)}…`).width > width) end -= 1;
  return end > 2 ? `${text.slice(0, end)}…` : "";
}

/** A name in as many lines as there is room for, each as far as it fits. */
export function broken(context, text, width, most) {
  const lines = [""];
  for (const word of text.split(/(?<=[ _])/)) {
    const longer = lines.at(-1) + word;
    const fits = context.measureText(longer.trimEnd()).width <= width;
    if (fits || !lines.at(-1) || lines.length >= most) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines.map((line) => fitted(context, line.trimEnd(), width));
}

/** Whether lines say all of a name. */
export function isWhole(lines, name) {
  const bare = (text) => text.replaceAll(" ", "");
  return bare(lines.join("")) === bare(name);
}

/** Lines around a place. */
export function writeLines(context, lines, x, y) {
  lines.forEach((line, i) => context.fillText(line, x, y + 13 * (i - (lines.length - 1) / 2)));
}
