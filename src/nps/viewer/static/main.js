// The page is put together here: header, tabs, the loop that draws, and the address.
import { frozen, frozenStart } from "./api.js";
import { startCompare } from "./compare.js";
import { byId, el, para } from "./dom.js";
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

const PANELS = {
  why: ["Why", startWhy], whatif: ["What if", startWhatIf], rules: ["Rules", startRules],
  play: ["Play", startWorld], compare: ["Compare", startCompare],
};

// -- tabs -------------------------------------------------------------------------------------

function startTabs() {
  for (const [name, [text, startPanel]] of Object.entries(PANELS)) {
    byId("tabs").append(el("button", {
      id: `tab-${name}`, role: "tab", "aria-controls": `panel-${name}`, text,
      onclick: () => openTab(name), onkeydown: moveTab,
    }));
    const panel = el("div", {
      id: `panel-${name}`, role: "tabpanel", "aria-labelledby": `tab-${name}`,
    });
    byId("panels").append(panel);
    startPanel(panel);
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
  byId("model").onchange = (event) => openEpisode({ model: Number(event.target.value) });
  const open = (episode) => openEpisode({ episode });
  byId("episode").onchange = (event) => open(Math.floor(event.target.value) || 0);
  byId("episode-back").onclick = () => open(state.episode - 1);
  byId("episode-on").onclick = () => open(state.episode + 1);
  byId("frozen-mark").hidden = !frozen;
  on("models play", tellHeader);
}

function tellHeader() {
  const options = session.models.map(({ id, title }) => el("option", { value: id, text: title }));
  const [models, episode] = [byId("model"), byId("episode")];
  models.replaceChildren(...options);
  models.value = state.model;
  models.disabled = options.length < 2;
  const last = model().episodes - 1;
  episode.max = last;
  episode.value = state.episode;
  episode.disabled = frozen;
  byId("episode-count").textContent = `of ${model().episodes}`;
  byId("episode-back").disabled = state.episode <= 0 || frozen;
  byId("episode-on").disabled = state.episode >= last || frozen;
  const title = session.play?.title ?? "";
  byId("title").textContent = title === `episode ${state.episode}` ? "" : title;
  document.title = `${model().title} · nps`;
}

// -- drawing: at most once between two frames of the screen ------------------------------------

let scheduled = false;
const drawn = []; // whom to tell when all pictures of the frame are there

function redraw() {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(() => {
    scheduled = false;
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
  const { tab, ...others } = values;
  adopt({ edits: {}, with: null, ...others });
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
  on("play time select sheet theme tab", redraw);
  on("play time select edits tab", keepAddress);
  new ResizeObserver(redraw).observe(byId("stage"));
  window.addEventListener("hashchange", followAddress);
  try {
    await loadModels();
    const wanted = { ...frozenStart, ...readAddress(location.hash) };
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
