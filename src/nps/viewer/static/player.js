// The clock: play and pause, speed, the scrubber, and the keys that go with them.
import { byId, clamp, el, menu } from "./dom.js";
import { model, redo, select, setTime, shown, undo } from "./session.js";
import { emit, on, state } from "./state.js";
import { hoverSlot, toggleMarks } from "./stage.js";

const SPEEDS = [0.25, 0.5, 1, 2, 4, 8, 16];
const HOLD = 0.8; // seconds on the last frame before it starts again

const clock = { playing: false, speed: 1, last: 0, phase: 0 };
const controls = {};

export function isPlaying() {
  return clock.playing;
}

export function togglePlaying(wanted = !clock.playing) {
  if (wanted === clock.playing) return;
  clock.playing = wanted && (shown()?.steps ?? 0) > 0;
  clock.phase = 0;
  if (clock.playing && state.t >= shown().steps) setTime(0);
  tellPlaying();
  if (clock.playing) {
    clock.last = performance.now();
    requestAnimationFrame(tick);
  } else {
    emit("paused");
  }
}

function tick(now) {
  if (!clock.playing) return;
  const rate = (model().fps || 4) * clock.speed;
  // After a pause of the browser the clock goes on; it does not catch up.
  clock.phase += Math.min(0.25, (now - clock.last) / 1000) * rate;
  clock.last = now;
  const steps = Math.floor(clock.phase);
  if (state.t >= shown().steps) {
    if (clock.phase > HOLD * Math.max(1, rate)) {
      clock.phase = 0;
      setTime(0);
    }
  } else if (steps) {
    clock.phase -= steps;
    setTime(state.t + steps);
  }
  requestAnimationFrame(tick);
}

function faster(by) {
  clock.speed = SPEEDS[clamp(SPEEDS.indexOf(clock.speed) + by, 0, SPEEDS.length - 1)];
  controls.speed.value = clock.speed;
}

function tellPlaying() {
  controls.play.textContent = clock.playing ? "❚❚" : "▶";
  controls.play.setAttribute("aria-label", clock.playing ? "Pause" : "Play");
  controls.play.setAttribute("aria-pressed", String(clock.playing));
}

function tellTime() {
  const steps = shown()?.steps ?? 0;
  controls.scrubber.max = steps;
  controls.scrubber.value = state.t;
  controls.scrubber.style.setProperty("--done", `${steps ? (100 * state.t) / steps : 0}%`);
  controls.scrubber.setAttribute("aria-valuetext", `frame ${state.t} of ${steps}`);
  controls.time.textContent = `${state.t} / ${steps}`;
}

export function startPlayer() {
  const button = (text, label, onclick, kind = "round") =>
    el("button", { class: kind, "aria-label": label, title: label, text, onclick });
  controls.play = button("▶", "Play", () => togglePlaying(), "round main");
  controls.scrubber = el("input", {
    id: "scrubber", type: "range", min: 0, max: 0, step: 1, value: 0, "aria-label": "Frame",
    oninput: (event) => { togglePlaying(false); setTime(Number(event.target.value)); },
  });
  controls.time = el("output", { id: "time", text: "0 / 0" });
  controls.speed = menu("Speed", SPEEDS.map((speed) => [speed, `${speed}×`]), {
    id: "speed", value: 1, onpick: (speed) => { clock.speed = speed; },
  });
  byId("transport").append(
    button("‹", "One frame back", () => step(-1)), controls.play,
    button("›", "One frame on", () => step(1)), controls.scrubber, controls.time, controls.speed,
  );
  on("time play", tellTime);
  document.addEventListener("keydown", pressed);
}

function step(by) {
  togglePlaying(false);
  setTime(state.t + by);
}

function nextSlot(by) {
  const slots = shown()?.slots ?? 0;
  if (!slots) return;
  const now = state.slot === null ? (by > 0 ? -1 : slots) : state.slot;
  select(clamp(now + by, 0, slots - 1), state.stage);
}

const KEYS = {
  " ": () => togglePlaying(),
  ArrowLeft: () => step(-1),
  ArrowRight: () => step(1),
  Home: () => step(-Infinity),
  End: () => step(Infinity),
  ArrowUp: () => nextSlot(-1),
  ArrowDown: () => nextSlot(1),
  "+": () => faster(1),
  "=": () => faster(1),
  "-": () => faster(-1),
  m: toggleMarks,
  "?": () => emit("help"),
  "[": () => select(state.slot ?? 0, Math.max(0, state.stage - 1)),
  "]": () => select(state.slot ?? 0, Math.min((shown()?.stages ?? 1) - 1, state.stage + 1)),
};

/** Keys of the control that has the focus, such as letters in a field, stay its own. */
export function isForControl(event) {
  const { target, key } = event;
  if (target.closest("dialog, select, input:not([type=range]):not([type=checkbox])")) return true;
  if (target.closest("input[type=range]")) {
    return target.id === "scrubber" ? key === "ArrowUp" || key === "ArrowDown"
      : key.startsWith("Arrow") || key === "Home" || key === "End";
  }
  if (target.closest("[role=tab]")) return [" ", "Enter", "ArrowLeft", "ArrowRight"].includes(key);
  if (target.closest("button, a, summary, input")) return key === " " || key === "Enter";
  return false;
}

function pressed(event) {
  if (event.defaultPrevented || isForControl(event)) return;
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "z") {
    event.preventDefault();
    if (event.shiftKey) redo(); else undo();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const act = KEYS[event.key];
  if (!act) return;
  event.preventDefault();
  hoverSlot(null);
  act();
}
