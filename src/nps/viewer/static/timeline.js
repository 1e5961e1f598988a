// The time line: actions, events, the error and the rules of an episode on one axis, under one
// cursor. Lanes are drawn on one canvas, only when what they show changes; the cursor is moved.
import { broken, isWhole, pen, sharp, writeLines } from "./canvas.js";
import { byId, clamp, el } from "./dom.js";
import { lanesOf } from "./lanes.js";
import { isPlaying, togglePlaying } from "./player.js";
import { openTab, select, setTime, shown } from "./session.js";
import { on, state } from "./state.js";
import { hoverSlot } from "./stage.js";

const LEAST = 5; // pixels of a step, unless the whole episode is asked for
const OVERVIEW = 22;

const view = {
  from: 0, span: 1, width: 0, labels: 0, lanes: [], height: 0, play: null, zoom: 1,
  held: false,
};
const nodes = {};

export function startTimeline() {
  nodes.canvas = el("canvas", { role: "img" });
  nodes.band = el("div", { class: "band" });
  nodes.cursor = el("div", { class: "cursor" });
  nodes.cell = el("div", { class: "chosen-cell", hidden: true });
  nodes.tip = el("div", { class: "tip", hidden: true });
  const { canvas, band, cursor, cell, tip } = nodes;
  nodes.plot = el("div", {
    class: "plot", onpointerdown: press, onpointermove: move, onpointerleave: leave,
    onpointerup: letGo, onpointercancel: letGo, onwheel: zoom,
  }, canvas, band, cursor, cell, tip);
  nodes.overview = el("canvas", { "aria-hidden": "true" });
  nodes.window = el("div", { class: "window" });
  nodes.whole = el("div", {
    class: "overview", hidden: true, onpointerdown: pressOverview,
    onpointermove: (event) => { if (event.buttons & 1) seekOverview(event); },
  }, nodes.overview, nodes.window);
  byId("timeline").append(nodes.plot, nodes.whole);
  new ResizeObserver(renew).observe(byId("timeline"));
  on("play tab theme models select", renew);
}

/** Lanes anew, when what they show or their size changed. */
function renew() {
  const play = shown();
  const width = byId("timeline").clientWidth;
  if (!play || !width) return;
  if (view.play?.id !== play.id) view.zoom = 1;
  const longest = Math.max(...[...play.slotNames, play.errorName].map((name) => name.length), 6);
  const labels = width < 520 ? 68 : Math.min(128, 24 + 6.4 * longest);
  Object.assign(view, { play, width, labels });
  view.plotWidth = width - view.labels - 10;
  fitSpan();
  view.lanes = lanesOf(play, view.plotWidth / view.span);
  view.height = 0;
  for (const lane of view.lanes) {
    lane.y = view.height;
    view.height += lane.height;
  }
  nodes.canvas.style.height = nodes.plot.style.height = `${view.height}px`;
  const sizes = `${play.steps} steps, ${play.slots} slots`;
  nodes.canvas.setAttribute("aria-label", `Rules by step: ${sizes}`);
  follow();
  draw();
  drawOverview();
  moveCursor();
}

function fitSpan() {
  const { play } = view;
  const fits = view.plotWidth / Math.max(LEAST, 3 * play.stages);
  const whole = Math.max(1, play.room);
  view.span = Math.max(Math.min(whole, 8), Math.min(whole, fits) / view.zoom);
  view.from = clamp(view.from, 0, whole - view.span);
}

/** Keep the cursor in sight; true if the window moved. It turns like a page, so that it is drawn
 * rarely; under the pointer it slides, so that steps do not run away. */
function follow(slide = false) {
  const { span, play } = view;
  const last = Math.max(1, play.room) - span;
  const margin = Math.min(8, span * 0.08);
  let { from } = view;
  if (state.t > from + span - margin && from < last) {
    from = slide ? state.t - span + margin : state.t - span * 0.15;
  } else if (state.t < from + margin && from > 0) {
    from = slide ? state.t - margin : state.t - span * 0.85;
  }
  from = clamp(from, 0, last);
  const moved = from !== view.from;
  view.from = from;
  return moved;
}

const xOf = (step) => view.labels + ((step - view.from) / view.span) * view.plotWidth;

function draw() {
  const { width, height, lanes, labels, plotWidth, from, span } = view;
  const context = sharp(nodes.canvas, width, height);
  context.textBaseline = "middle";
  for (const lane of lanes) {
    const { y } = lane;
    const box = {
      x: labels, y, width: plotWidth, height: lane.height, from, to: from + span,
      step: plotWidth / span, xOf,
    };
    drawLabels(context, lane);
    context.save();
    context.beginPath();
    context.rect(labels - 5, y, plotWidth + 10, lane.height);
    context.clip();
    lane.draw(context, box);
    context.restore();
  }
}

function drawLabels(context, lane) {
  const names = lane.rows ?? [lane.label];
  const each = lane.height / names.length;
  names.forEach((name, i) => {
    const chosen = lane.selects && state.slot === i;
    pen(context, chosen ? "ink" : "soft", `${chosen ? 600 : 400} 12px`);
    const most = Math.min(3, Math.floor(each / 13));
    const inLines = (text) => broken(context, text, view.labels - 10, most);
    const whole = inLines(name);
    const lines = lane.brief && !isWhole(whole, name) ? inLines(lane.brief) : whole;
    if (each >= 9) writeLines(context, lines, 0, lane.y + each * (i + 0.5) + (lane.note ? 6 : 0));
  });
  if (!lane.note) return;
  pen(context, "faint", "10px");
  context.textAlign = "right";
  context.fillText(lane.note, view.labels - 8, lane.y + 9);
  context.textAlign = "left";
}

function drawOverview() {
  const { play, span } = view;
  nodes.whole.hidden = span >= play.steps;
  if (nodes.whole.hidden) return;
  const context = sharp(nodes.overview, view.plotWidth, OVERVIEW);
  nodes.overview.style.width = `${view.plotWidth}px`;
  nodes.whole.style.marginLeft = `${view.labels}px`;
  nodes.whole.style.width = `${view.plotWidth}px`;
  const image = view.lanes.find((lane) => lane.image)?.image;
  image?.draw(context, 0, image.columns, 0, 0, view.plotWidth, OVERVIEW);
}

/** On another frame only the cursor moves, and the window when the cursor would leave it. */
export function moveCursor() {
  const { play } = view;
  if (!play) return;
  if (follow(view.held)) draw();
  const x = xOf(state.t);
  nodes.cursor.style.transform = `translateX(${x}px)`;
  const last = state.t >= play.steps;
  nodes.band.hidden = last;
  nodes.band.style.transform = `translateX(${x}px)`;
  nodes.band.style.width = `${view.plotWidth / view.span}px`;
  if (!nodes.whole.hidden) {
    nodes.window.style.transform = `translateX(${(view.from / play.steps) * view.plotWidth}px)`;
    nodes.window.style.width = `${Math.max(6, (view.span / play.steps) * view.plotWidth)}px`;
  }
  moveCell();
}

/** A cell of the raster in the plot; null if there is no raster. */
function cellOf(step, slot, stage) {
  const lane = view.lanes.find((one) => one.selects);
  if (!lane) return null;
  const { stages } = view.play;
  const height = lane.height / lane.rows.length;
  const width = view.plotWidth / view.span / stages;
  return { x: xOf(step + stage / stages), y: lane.y + height * slot, width, height };
}

function moveCell() {
  const chosen = state.slot !== null && state.t < view.play.steps;
  const cell = chosen ? cellOf(state.t, state.slot, state.stage) : null;
  nodes.cell.hidden = !cell;
  if (!cell) return;
  nodes.cell.style.transform = `translate(${cell.x}px, ${cell.y}px)`;
  nodes.cell.style.width = `${Math.max(4, cell.width)}px`;
  nodes.cell.style.height = `${cell.height}px`;
}

/** The middle of a cell of the raster in the window; for whoever points at it. */
export function cellAt(step, slot, stage = 0) {
  const { x, y, width, height } = cellOf(step, slot, stage);
  const bounds = nodes.plot.getBoundingClientRect();
  return { x: bounds.left + x + width / 2, y: bounds.top + y + height / 2 };
}

/** What is under a pointer: {step (a share too), lane, row, stage, label}. */
function under(event) {
  const bounds = nodes.plot.getBoundingClientRect();
  const [x, y] = [event.clientX - bounds.left, event.clientY - bounds.top];
  const exact = view.from + ((x - view.labels) / view.plotWidth) * view.span;
  const lane = view.lanes.find((one) => y < one.y + one.height);
  const at = lane?.rows ? Math.floor(((y - lane.y) / lane.height) * lane.rows.length) : null;
  const whole = (value, count) => clamp(Math.floor(value), 0, count - 1);
  const step = whole(exact, view.play.steps);
  const stage = whole((exact - step) * view.play.stages, view.play.stages);
  return { exact, step, stage, lane, row: at, x, y, label: x < view.labels - 4 };
}

function press(event) {
  if (event.button !== 0 || !view.play) return;
  const spot = under(event);
  if (spot.lane?.selects) select(spot.row, spot.label ? 0 : spot.stage);
  if (spot.label) return;
  nodes.plot.setPointerCapture(event.pointerId);
  view.held = true;
  if (isPlaying()) togglePlaying(false);
  seekTo(spot);
  if (spot.lane?.selects && state.tab === "rules") openTab("why");
}

function letGo() {
  view.held = false;
}

/** Between lanes of frames and of steps: a click on a step shows the frame it starts from. */
function seekTo({ exact, lane }) {
  setTime(lane?.frames ? Math.round(exact) : Math.floor(exact));
}

function move(event) {
  if (!view.play) return;
  const spot = under(event);
  if (event.buttons & 1 && nodes.plot.hasPointerCapture(event.pointerId)) seekTo(spot);
  const slot = spot.lane?.selects ? spot.row : null;
  hoverSlot(spot.label ? slot : null);
  const text = spot.label ? "" : spot.lane?.tell?.(spot) ?? "";
  nodes.tip.hidden = !text;
  if (!text) return;
  nodes.tip.textContent = text;
  const left = clamp(spot.x + 12, 0, view.width - nodes.tip.offsetWidth - 4);
  nodes.tip.style.transform = `translate(${left}px, ${spot.y + 18}px)`;
}

function leave() {
  nodes.tip.hidden = true;
  hoverSlot(null);
}

/** With Ctrl, as maps do it; without, the page scrolls. */
function zoom(event) {
  if (!event.ctrlKey || !view.play) return;
  event.preventDefault();
  const { exact } = under(event);
  const share = (exact - view.from) / view.span;
  view.zoom = clamp(view.zoom * 2 ** (-event.deltaY / 200), 1, 64);
  fitSpan();
  view.from = clamp(exact - share * view.span, 0, view.play.steps - view.span);
  renew();
}

function pressOverview(event) {
  nodes.whole.setPointerCapture(event.pointerId);
  seekOverview(event);
}

function seekOverview(event) {
  const bounds = nodes.whole.getBoundingClientRect();
  setTime(((event.clientX - bounds.left) / bounds.width) * view.play.steps);
}
