// Saving an edited model as a run of its own, for `nps eval` to compare.
import { ask, frozen } from "./api.js";
import { el, fill, para, say } from "./dom.js";
import { isEdited, lastingEdits } from "./edits.js";
import { model } from "./session.js";
import { state } from "./state.js";

export function saveFields() {
  if (!model().saves || frozen) return { node: el("span"), update() {} };
  const name = el("input", {
    type: "text", placeholder: "name", "aria-label": "Name of the new run",
  });
  const told = el("p", { class: "soft", role: "status" });
  const button = el("button", { text: "Save as a new run", onclick: save });
  async function save() {
    const body = { model: state.model, edits: lastingEdits(state.edits) };
    if (name.value.trim()) body.name = name.value.trim();
    try {
      const { run, command } = await ask("/api/save", body);
      fill(told, `Saved as ${run}. Compare: `, el("code", { text: command }));
    } catch (error) {
      say(error.message, "error");
    }
  }
  const node = el("div", {}, el("h3", { text: "Keep it" }),
    el("div", { class: "fields row" }, name, button), told,
    para("Rules that are off, scaled or biased are saved; what was done "
      + "at single steps belongs to this episode."));
  return { node, update() { button.disabled = !isEdited(lastingEdits(state.edits)); } };
}
