// The lanes of the time line. A lane has a height, a label or rows, and draws itself into a box
// that knows which steps it spans; `tell` says what is under the pointer.
import { fitted, pen } from "./canvas.js";
import { differenceLane, rasterLane, visibleSteps } from "./cells.js";
import { themeColour } from "./colours.js";
import { errorLane } from "./curve.js";
import { comparing, model as currentModel, otherModel, session } from "./session.js";

const ROOM = 36; // pixels of a step from which on words fit into it

/** The lanes of a playback when a step has so many pixels. */
export function lanesOf(play, step) {
  const model = currentModel();
  const other = comparing() ? session.other : null;
  const base = play === session.world || other ? null : session.base;
  const lanes = [];
  const names = play.actionNames ?? model.actions; // worlds have their own
  if (play.actions?.length && model.actions.length && step >= ROOM) {
    lanes.push(actionLane(play, base, names));
  }
  if (tellsMore(play, names)) lanes.push(eventLane(play));
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

/** Whether events are more than the actions' names again. */
function tellsMore({ events, actions }, names) {
  return events.some((event, step) => event && event !== names[actions?.[step]]);
}

function actionLane(play, base, names) {
  const name = (step) => names[play.actions[step]] ?? "";
  const twoLines = names.some((text) => text.includes(" ") && text.length > 5);
  return {
    label: "action", height: twoLines ? 38 : 26,
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
        const lines = wrapped(context, name(step), box.step - 6, twoLines);
        lines.forEach((line, i) => {
          const y = box.y + (box.height - 5) / 2 + (i - (lines.length - 1) / 2) * 13;
          context.fillText(line, x + box.step / 2, y + 0.5);
        });
      }
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
      pen(context, "ink", "11px");
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
