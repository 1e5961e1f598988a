// The actions of an episode as chips in a row: exchanged by dragging one onto another, changed by
// dragging a new one there or from a menu. So operations on digits are composed.
import { frozen } from "./api.js";
import { clamp, el, indexed, menu } from "./dom.js";
import { changeAction } from "./edits.js";
import { changeEdits, model, session, setTime } from "./session.js";
import { state } from "./state.js";

const MOST = 12; // chips at a time
const MOST_NEW = 40;

let held = null; // what is dragged: {step, action} or {action}

/** The row, or nothing if nothing acts. */
export function actionLine() {
  const { play, base } = session;
  const { actions } = model();
  if (!play.actions || !actions.length) return [];
  const longest = Math.max(play.steps, model().longest ?? 0);
  const first = clamp(state.t - MOST / 2, 0, longest - MOST);
  const chips = [];
  for (let step = first; step < Math.min(longest, first + MOST); step += 1) {
    if (step < play.steps) chips.push(chip(play, base ?? play, step));
    else if (step === play.steps) chips.push(free(step));
  }
  const palette = actions.slice(0, MOST_NEW).map((text, action) => el("span", {
    class: "chip new", text, title: "Drag it onto a step", ...dragged({ action }),
  }));
  return [
    el("h3", { text: "Actions" }),
    el("ol", { class: "actions", start: first }, chips),
    el("details", { class: "palette", open: palette.length <= 12 },
      el("summary", { text: "Drag an action onto a step" }),
      el("div", { class: "chips" }, palette)),
  ];
}

function chip(play, base, step) {
  const action = play.actions[step];
  const changed = base.actions?.[step] !== action;
  const choose = actionMenu(step, indexed(model().actions), action);
  return el("li", {
    class: `${step === state.t ? "now" : ""} ${changed ? "changed" : ""}`,
    ...dragged({ step, action }), ...target(step),
  }, el("button", {
    class: "plain", text: step, "aria-label": `To step ${step}`, onclick: () => setTime(step),
  }), choose);
}

function actionMenu(step, options, value) {
  return menu(`Action at step ${step}`, options, {
    "data-key": `action ${step}`, value, disabled: frozen,
    onpick: (picked) => changeActions([[step, picked]]),
  });
}

/** A place at the end, where a chain of operations can grow. */
function free(step) {
  const choose = actionMenu(step, [["", "add…"], ...indexed(model().actions)], "");
  return el("li", { class: "free", ...target(step) },
    el("span", { class: "soft", text: "+" }), choose);
}

/** What makes a node one that can be dragged. */
function dragged(what) {
  const hold = ({ dataTransfer }) => {
    held = what;
    dataTransfer.effectAllowed = "copyMove";
    dataTransfer.setData("text/plain", model().actions[what.action] ?? "");
  };
  return { draggable: !frozen && "true", ondragstart: hold, ondragend: () => { held = null; } };
}

/** What makes a node one that the dragged can be dropped on. */
function target(step) {
  return { ondragover: over, ondragleave: out, ondrop: (event) => drop(event, step) };
}

function over(event) {
  if (!held) return;
  event.preventDefault();
  event.currentTarget.classList.add("target");
}

function out(event) {
  event.currentTarget.classList.remove("target");
}

function drop(event, step) {
  out(event);
  if (!held || held.step === step) return;
  event.preventDefault();
  const { play } = session;
  const changes = [[step, held.action]];
  // One that stood in the row goes where the other was: they are exchanged.
  if (held.step !== undefined && step < play.steps) changes.push([held.step, play.actions[step]]);
  held = null;
  changeActions(changes);
}

function changeActions(changes) {
  const original = (session.base ?? session.play).actions;
  let { edits } = state;
  for (const [step, action] of changes) edits = changeAction(edits, step, action, original[step]);
  changeEdits(edits);
}
