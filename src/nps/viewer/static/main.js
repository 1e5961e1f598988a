// The page is put together here: header, tabs, the loop that draws, and the address.
import { frozenStart, isFrozen } from "./api.js";
import { startCompare } from "./compare.js";
import { byId, el, menu, para } from "./dom.js";
import { startHelp } from "./help.js";
import { tellNow } from "./now.js";
import { startPlayer } from "./player.js";
import { startRules } from "./rules.js";
import { adopt, loadModels, model, openEpisode, openTab, reload, settled } from "./session.js";
import { session, setTime, shown } from "./session.js";
import { startShare } from "./share.js";
import { sheetBytes, sheetsUnderway } from "./sheets.js";
import { drawStage, startStage } from "./stage.js";
import { TABS, emit, on, readAddress, state, writeAddress } from "./state.js";
import { cellAt, moveCursor, startTimeline } from "./timeline.js";
import { startWhatIf } from "./whatif.js";
import { startWhy } from "./why.js";
import { startWorld } from "./world.js";

const TITLES = { why: "Why", whatif: "What if", rules: "Rules", play: "Play", compare: "Compare" };
const STARTS = {
  why: startWhy, whatif: startWhatIf, rules: startRules, play: startWorld, compare: startCompare,
};

// -- tabs -------------------------------------------------------------------------------------

function startTabs() {
  for (const name of TABS) {
    byId("tabs").append(el("button", {
      id: `tab-${name}`, role: "tab", "aria-controls": `panel-${name}`, text: TITLES[name],
      onclick: () => openTab(name), onkeydown: moveTab,
    }));
    const panel = el("div", {
      id: `panel-${name}`, role: "tabpanel", "aria-labelledby": `tab-${name}`,
    });
    byId("panels").append(panel);
    STARTS[name](panel);
  }
  on("tab", tellTab);
}

function tellTab() {
  for (const name of TABS) {
    const chosen = name === state.tab;
    byId(`tab-${name}`).setAttribute("aria-selected", String(chosen));
    byId(`tab-${name}`).tabIndex = chosen ? 0 : -1;
    byId(`panel-${name}`).hidden = !chosen;
  }
}

function moveTab(event) {
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!by) return;
  event.preventDefault();
  openTab(TABS[(TABS.indexOf(state.tab) + by + TABS.length) % TABS.length]);
  byId(`tab-${state.tab}`).focus();
}

// -- header -----------------------------------------------------------------------------------

function startHeader() {
  byId("model").addEventListener("change", (e) => openEpisode({ model: Number(e.target.value) }));
  const episode = (value) => openEpisode({ episode: value });
  byId("episode").addEventListener("change", (e) => episode(Math.floor(e.target.value) || 0));
  byId("episode-back").addEventListener("click", () => episode(state.episode - 1));
  byId("episode-on").addEventListener("click", () => episode(state.episode + 1));
  byId("frozen-mark").hidden = !isFrozen();
  on("models", tellHeader);
  on("play", tellHeader);
}

function tellHeader() {
  const options = session.models.map(({ id, title }) => [id, title]);
  byId("model").replaceChildren(...menu("", options).childNodes);
  byId("model").value = state.model;
  byId("model").disabled = options.length < 2;
  byId("episode").value = state.episode;
  const last = model().episodes - 1;
  byId("episode").max = last;
  byId("episode-count").textContent = `of ${model().episodes}`;
  byId("episode-back").disabled = state.episode <= 0 || isFrozen();
  byId("episode-on").disabled = state.episode >= last || isFrozen();
  byId("episode").disabled = isFrozen();
  const title = session.play?.title ?? "";
  byId("title").textContent = title === `episode ${state.episode}` ? "" : title;
  document.title = `${model().title} · nps`;
}

// -- drawing: at most once between two frames of the screen ------------------------------------

let asked = false;
const drawn = []; // whom to tell when all pictures of the frame are there

function redraw() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => {
    asked = false;
    const complete = drawStage();
    moveCursor();
    tellNow();
    if (complete || !sheetsUnderway()) for (const tell of drawn.splice(0)) tell();
  });
}

/** Resolves once frame t of what was asked for is on the screen. */
async function seek(t) {
  await settled();
  setTime(t);
  redraw();
  return new Promise((resolve) => drawn.push(resolve));
}

// -- the address --------------------------------------------------------------------------------

let writing = 0;

function keepAddress() {
  clearTimeout(writing);
  writing = setTimeout(() => {
    try {
      history.replaceState(null, "", `#${writeAddress(state)}`);
    } catch {
      // A sandboxed page has no address of its own.
    }
  }, 250);
}

function followAddress() {
  const values = readAddress(location.hash);
  if (writeAddress({ ...state, ...values }) === writeAddress(state)) return;
  const { tab } = values;
  delete values.tab;
  adopt({ edits: {}, with: null, ...values });
  if (tab) openTab(tab);
  reload();
}

async function start() {
  startHeader();
  startTabs();
  startPlayer();
  startStage();
  startTimeline();
  startShare();
  startHelp();
  for (const event of ["play", "time", "select", "sheet", "theme", "tab"]) on(event, redraw);
  for (const event of ["play", "time", "select", "edits", "tab"]) on(event, keepAddress);
  new ResizeObserver(redraw).observe(byId("stage"));
  window.addEventListener("hashchange", followAddress);
  try {
    await loadModels();
    const wanted = { ...frozenStart(), ...readAddress(location.hash) };
    const { opening } = session.models[wanted.model] ?? session.models[0];
    adopt({ episode: opening, ...wanted });
    tellTab();
    emit("models");
    await reload();
    await seek(state.t);
    document.body.classList.add("ready");
  } catch (error) {
    document.body.classList.add("failed"); // no controls of nothing
    byId("stage").append(para(error.message, "lead"));
  }
}

window.nps = {
  ready: start(), seek, cell: cellAt, memory: sheetBytes,
  state: () => ({ ...state, steps: shown()?.steps ?? null }),
};
