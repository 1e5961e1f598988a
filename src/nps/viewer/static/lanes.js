// The lanes of the time line. A lane has a height, a label or rows, and draws itself into a box
// that knows which steps it spans; `tell` says what is under the pointer.
import { broken, fitted, isWhole, pen, writeLines } from "./canvas.js";
import { differenceLane, rasterLane, visibleSteps } from "./cells.js";
import { themeColour } from "./colours.js";
import { errorLane } from "./curve.js";
import { comparing, model as currentModel, otherModel, session } from "./session.js";

const ROOM = 36; // pixels of a step from which on words fit into it
const GAP = 6; // pixels between the words of two steps
const ruler = document.createElement("canvas").getContext("2d");

/** Names by step → their lines; null unless all can be read: a part of a name tells nothing. */
function linesOf(names, step) {
  const all = [...new Set(names)].filter((name) => name);
  if (step < ROOM || !all.length) return null;
  pen(ruler, "ink", "11px");
  const lines = new Map(all.map((name) => [name, broken(ruler, name, step - GAP, 3)]));
  return [...lines].every(([name, parts]) => isWhole(parts, name)) ? lines : null;
}

const tallest = (lines) => Math.max(...[...lines.values()].map((parts) => parts.length));

/** The lanes of a playback when a step has so many pixels. */
export function lanesOf(play, step) {
  const model = currentModel();
  const other = comparing() ? session.other : null;
  const base = play === session.world || other ? null : session.base;
  const lanes = [];
  const names = play.actionNames ?? model.actions; // worlds have their own
  const acted = (play.actions ?? []).map((action) => names[action] ?? "");
  const lines = linesOf(acted, step);
  if (lines) lanes.push(actionLane(play, base, acted, lines));
  // Unless events are the actions' names again.
  if (play.events.some((event, t) => event && event !== acted[t])) lanes.push(eventLane(play, step));
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

function actionLane(play, base, acted, lines) {
  return {
    label: "action", height: 12 + 13 * tallest(lines),
    draw(context, box) {
      const [first, last] = visibleSteps(box, play.steps);
      context.textAlign = "center";
      for (let step = first; step < last; step += 1) {
        const x = box.xOf(step);
        const changed = base?.actions && base.actions[step] !== play.actions[step];
        context.fillStyle = themeColour(changed ? "accent-soft" : "wash");
        context.beginPath();
        context.roundRect(x + 1, box.y, box.step - 2, box.height - 5, 5);
        context.fill();
        pen(context, changed ? "accent" : "soft", "11px");
        const y = box.y + (box.height - 5) / 2 + 0.5;
        writeLines(context, lines.get(acted[step]) ?? [], x + box.step / 2, y);
      }
    },
    tell: ({ step }) => `step ${step}: ${acted[step]}`,
  };
}

/** What truly happened: in words where there is room, else a dot wherever it was not the usual. */
function eventLane(play, step) {
  const usual = commonest(play.events);
  const lines = linesOf(play.events, step);
  return {
    label: "truly", height: lines ? 7 + 13 * tallest(lines) : 20,
    draw(context, box) {
      const [first, last] = visibleSteps(box, play.steps);
      const y = box.y + box.height / 2;
      pen(context, "ink", "11px");
      for (let t = first; t < last; t += 1) {
        const text = play.events[t];
        if (!text) continue;
        const x = box.xOf(t);
        if (lines) writeLines(context, lines.get(text), x + 4, y);
        else if (text !== usual) {
          context.fillRect(x + box.step / 2 - 2, y - 2, Math.min(4, box.step + 0.5), 4);
        }
      }
    },
    tell: ({ step: t }) => (play.events[t] ? `step ${t}: ${play.events[t]}` : ""),
  };
}

/** What most steps have in common; nothing if there is no such event. */
function commonest(events) {
  const counts = new Map();
  for (const event of events) counts.set(event, (counts.get(event) ?? 0) + 1);
  const [[event, most]] = [...counts].sort((a, b) => b[1] - a[1]);
  return most > events.length / 3 ? event : null;
}

function headingLane(text) {
  return {
    label: "", height: 26,
    draw(context, box) {
      pen(context, "soft", "600 12px");
      context.fillText(fitted(context, text, box.width), box.x, box.y + box.height / 2 + 3);
    },
  };
}

function axisLane(play) {
  return {
    label: "step", height: 20,
    draw(context, box) {
      const [first, last] = visibleSteps(box, play.steps);
      const nice = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];
      const every = nice.find((one) => one * box.step >= 34) ?? 2000;
      pen(context, "faint", "10px");
      context.textAlign = "center";
      for (let t = Math.ceil(first / every) * every; t <= last; t += every) {
        const x = box.xOf(t);
        if (x < box.x - 1 || x > box.x + box.width + 1) continue;
        context.fillText(t, Math.min(x, box.x + box.width - 2), box.y + box.height / 2 + 2);
      }
    },
  };
}
