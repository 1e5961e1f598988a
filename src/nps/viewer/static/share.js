// "Share": the address of what is shown, the page frozen into one file, and films.
import { ask, askBlob, frozen, token } from "./api.js";
import { byId, el, openSheet, say } from "./dom.js";
import { asked, model, session } from "./session.js";
import { state, writeAddress } from "./state.js";

let dialog = null;

export function startShare() {
  byId("share").onclick = open;
}

async function open() {
  const films = frozen ? {} : await knownFilms();
  dialog?.remove();
  const entry = (text, hint, control) => el(
    "li", {}, el("div", {}, el("b", { text }), el("span", { class: "soft", text: hint })), control,
  );
  const button = (text, onclick, props) => el("button", { text, onclick, ...props });
  const rows = [entry("Address", frozen ? "what is shown now, in this file"
    : "what is shown now; opens on this computer while nps view runs",
  button("Copy", copyAddress))];
  if (!frozen) {
    rows.push(entry("Page", "one file that plays offline, with what each rule does when switched off",
      button("Save HTML", (event) => download(event.target, "html"))));
    const buttons = Object.entries(films).map(([format, missing]) =>
      button(format.toUpperCase(), (event) => download(event.target, format),
        { disabled: missing !== null, title: missing }));
    // A title is not shown by touch, nor at a button that is off: said in words as well.
    const reasons = [...new Set(Object.values(films).filter((missing) => missing !== null))];
    const hint = ["GIF for a README, MP4 for slides, WebP small and lossless", ...reasons];
    rows.push(entry("Film", hint.join("; "), el("div", { class: "films" }, buttons)));
  }
  dialog = openSheet("Share", el("ul", { class: "rows" }, rows));
}

/** Formats of films → what is missing on this computer to make them. */
async function knownFilms() {
  try {
    return (await ask("/api/films", {})).films;
  } catch (error) {
    say(error.message, "error");
    return {};
  }
}

function addressNow() {
  const secret = token ? `token=${token}&` : "";
  return `${location.href.split("#")[0]}#${secret}${writeAddress(state)}`;
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
  const { with: model, episode } = state;
  return model === null ? asked() : { ...asked(), compare: { model, episode, edits: {} } };
}

function size(bytes) {
  if (bytes >= 1e6) return `${(bytes / 1e6).toFixed(1)} MB`;
  return `${Math.max(1, Math.round(bytes / 1000))} kB`;
}
