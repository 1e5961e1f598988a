// "Play": the true world and the model's imagination, moved by the same keys, until they part.
import { ask, frozen } from "./api.js";
import { ruleTag } from "./colours.js";
import { el, field, fill, number, para } from "./dom.js";
import { timeLink } from "./goto.js";
import { WorldHistory } from "./playback.js";
import { isForControl, togglePlaying } from "./player.js";
import { model, select, session, shown, showWorld } from "./session.js";
import { on, state } from "./state.js";

const MOST_STEPS = 500;
const INVITATION = "You move the true world; the model only imagines it. How long do they agree?";
const world = { node: null, seed: 0, acting: false, failed: "" };

export function startWorld(node) {
  world.node = node;
  on("tab play select", showControls);
  // Before the player's own keys, which the arrows of a world replace.
  document.addEventListener("keydown", pressWorld, true);
}

async function begin() {
  togglePlaying(false);
  world.failed = "";
  try {
    const answer = await ask("/api/world/start", { model: state.model, seed: world.seed });
    const history = new WorldHistory(model(), answer);
    await history.add(answer.moment, null);
    if (state.slot === null) select(0);
    showWorld(history);
  } catch (error) {
    world.failed = error.message;
    showControls();
  }
}

async function act(action) {
  const history = session.world;
  if (!history || world.acting || history.steps >= MOST_STEPS) return;
  world.acting = true; // moves come one after the other
  try {
    const { moment } = await ask("/api/world/act", { world: history.world, action });
    await history.add(moment, action);
    if (session.world === history) showWorld(history);
  } catch (error) {
    world.failed = error.message;
    showControls();
  } finally {
    world.acting = false;
  }
}

/** The action of a key: the one of the chosen slot, or of all. */
function actionOf(key) {
  const actions = model()?.keys[key] ?? model()?.keys[key.toLowerCase()];
  if (!actions) return null;
  return actions.length === 1 ? actions[0] : actions[state.slot ?? 0] ?? null;
}

function pressWorld(event) {
  if (state.tab !== "play" || !session.world || isForControl(event)) return;
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const action = actionOf(event.key);
  if (action !== null) {
    event.preventDefault();
    event.stopPropagation();
    act(action);
  } else if (/^[0-9]$/.test(event.key) && Number(event.key) < shown().slots) {
    event.preventDefault();
    select(movers()[Number(event.key)].slot);
  }
}

function showControls() {
  if (state.tab !== "play" || !session.play) return;
  const { plays, needs } = model();
  if (!plays || frozen) {
    const text = frozen ? "This page is frozen: playing needs nps view."
      : needs || "This world cannot be stepped here: the episodes are recordings, and the "
        + "environment that they are of, if there is one, is not installed.";
    fill(world.node, para(text, "lead"));
    return;
  }
  const seed = el("input", {
    type: "number", min: 0, max: 999999, value: world.seed, "aria-label": "Seed",
    "data-key": "seed",
    onchange: () => { world.seed = Math.max(0, Math.floor(Number(seed.value) || 0)); },
  });
  const start = el("button", {
    class: session.world ? "" : "main", "data-key": "start", onclick: begin,
    text: session.world ? "Start again" : "Start",
  });
  const failed = world.failed ? para(world.failed, "note") : null;
  const begins = el("div", { class: "fields row" }, field("seed", seed), start);
  if (!session.world) {
    fill(world.node, para(INVITATION, "lead"), begins, failed);
    return;
  }
  fill(world.node, worldVerdict(session.world), failed,
    session.world.slots > 1 && hasSlotKeys() ? slotChips() : null, keyPad(), actionButtons(),
    begins);
}

function worldVerdict(history) {
  const { parted } = history;
  if (!parted) {
    const { looked } = history;
    const together = history.steps - looked;
    const since = looked ? `, since the model looked again in frame ${looked}` : "";
    const text = together ? `Together for ${together} ${together === 1 ? "step" : "steps"}${since}.`
      : looked ? "The model has looked again: what it imagines starts from here."
        : "The same so far. Make a move.";
    return el("p", { class: "lead agree", role: "status", text });
  }
  // Step t leads from frame t to the next one: what was wrong is the choice of the step before.
  const step = parted.step - 1;
  const line = el("p", { class: "lead parted", role: "status" }, step < 0
    ? "They differ from the start"
    : ["They parted at ", timeLink("parted", `step ${step}`, step), `, in frame ${parted.step}`]);
  if (parted.slot !== null) line.append(`, on ${history.slotNames[parted.slot]}`);
  if (parted.rule !== null) {
    line.append(": ", parted.rule < 0 ? "no rule fired on it" : ruleTag(model(), parted.rule));
  }
  const now = history.moments.at(-1);
  return el("div", { class: "fields" }, line,
    para(`${history.errorName} now: ${number(now.error)}`));
}

function hasSlotKeys() {
  return Object.values(model().keys).some((actions) => actions.length > 1);
}

/** The slots in the order of their actions. A slot may show another object than its number says. */
function movers() {
  const { slotNames } = session.world;
  const own = Object.values(model().keys).find((actions) => actions.length === slotNames.length);
  const found = slotNames.map((name, slot) => ({ slot, name, action: own?.[slot] ?? slot }));
  return found.sort((a, b) => a.action - b.action);
}

function slotChips() {
  return el("div", { class: "chips", role: "group", "aria-label": "What the keys move" },
    el("span", { class: "soft", text: "Move" }),
    movers().map(({ slot, name }) => el("button", {
      class: "chip", "aria-pressed": String(slot === (state.slot ?? 0)),
      "data-key": `slot ${slot}`, text: name,
      onclick: () => select(slot),
    })));
}

const ARROWS = { ArrowUp: "↑", ArrowLeft: "←", ArrowDown: "↓", ArrowRight: "→" };

/** Buttons for the keys, for those who have none. */
function keyPad() {
  const keys = Object.keys(model().keys);
  if (!keys.length) return null;
  const isPad = Object.keys(ARROWS).every((key) => keys.includes(key));
  return el("div", { class: `keys ${isPad ? "pad" : ""}` }, keys.map((key) => {
    const action = actionOf(key);
    const name = session.world.actionNames[action] ?? "";
    return el("button", {
      class: `key ${key}`, title: name, "aria-label": name || key, text: ARROWS[key] ?? key,
      "data-key": `key ${key}`, disabled: action === null, onclick: () => act(action),
    });
  }));
}

function actionButtons() {
  const actions = session.world.actionNames;
  const list = el("div", { class: "chips" }, actions.slice(0, 60).map((text, action) =>
    el("button", {
      class: "chip", "data-key": `act ${action}`, text, onclick: () => act(action),
    })));
  return Object.keys(model().keys).length && actions.length > 8
    ? el("details", {}, el("summary", { text: "All actions" }), list) : list;
}
