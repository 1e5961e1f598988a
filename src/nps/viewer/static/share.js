// "Share": the address of what is shown, the page frozen into one file, and films.
import { askBlob, currentToken, isFrozen } from "./api.js";
import { byId, el, say } from "./dom.js";
import { model, session } from "./session.js";
import { state, writeAddress } from "./state.js";

let dialog = null;

export function startShare() {
  byId("share").addEventListener("click", open);
}

function open() {
  dialog?.remove();
  const row = (text, hint, control) => el(
    "li", {}, el("div", {}, el("b", { text }), el("span", { class: "soft", text: hint })), control,
  );
  const rows = [];
  const button = (text, onclick) => el("button", { text, onclick });
  rows.push(row("Address", isFrozen() ? "what is shown now, in this file"
    : "what is shown now; opens on this computer while nps view runs",
  button("Copy", copyAddress)));
  if (!isFrozen()) {
    rows.push(row("Page", "one file that plays offline, with what each rule does when switched off",
      button("Save HTML", (event) => download(event.target, "html"))));
    const films = ["gif", "mp4", "webp"].map((format) =>
      button(format.toUpperCase(), (event) => download(event.target, format)));
    rows.push(row("Film", "GIF for a README, MP4 for slides, WebP small and lossless",
      el("div", { class: "films" }, films)));
  }
  dialog = el("dialog", { class: "sheet", "aria-label": "Share" },
    el("h2", { text: "Share" }), el("ul", { class: "rows" }, rows),
    el("form", { method: "dialog" }, el("button", { text: "Close" })));
  document.body.append(dialog);
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  dialog.showModal();
}

function addressNow() {
  const token = currentToken() ? `token=${currentToken()}&` : "";
  return `${location.href.split("#")[0]}#${token}${writeAddress(state)}`;
}

async function copyAddress() {
  const address = addressNow();
  try {
    await navigator.clipboard.writeText(address);
    say("Copied");
  } catch {
    // No clipboard here: shown, selected, to be copied by hand.
    const field = el("input", {
      type: "text", readonly: true, value: address, "aria-label": "Address",
    });
    dialog.querySelector("ul").after(field);
    field.select();
  }
}

async function download(button, format) {
  const text = button.textContent;
  button.disabled = true;
  button.textContent = "Preparing…";
  try {
    const blob = format === "html" ? await askBlob("/api/html", wholePage())
      : await askBlob("/api/film", { play: session.play.id, format });
    const name = `${model().title} episode ${state.episode}`.replace(/[^\w-]+/g, "-");
    const link = el("a", { href: URL.createObjectURL(blob), download: `${name}.${format}` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    say(`Saved ${name}.${format}, ${size(blob.size)}`);
  } catch (error) {
    say(error.message, "error");
  }
  button.disabled = false;
  button.textContent = text;
}

function wholePage() {
  const body = { model: state.model, episode: state.episode, edits: state.edits };
  if (state.with !== null) body.compare = { model: state.with, episode: state.episode, edits: {} };
  return body;
}

function size(bytes) {
  if (bytes >= 1e6) return `${(bytes / 1e6).toFixed(1)} MB`;
  return `${Math.max(1, Math.round(bytes / 1000))} kB`;
}
