// The colours of rules. Eight hues that people with colour blindness tell apart (Okabe and Ito's,
// and wine for black), in four variants that differ in lightness and hatching: 32 rules. A rule has
// the same colour wherever it is shown, and its number is written where there is room.
import { el } from "./dom.js";
import { emit } from "./state.js";

const HUES = [
  [0, 114, 178], [230, 159, 0], [0, 158, 115], [213, 94, 0],
  [86, 180, 233], [204, 121, 167], [240, 228, 66], [136, 34, 85],
];
const TOWARDS = [[0, 0], [255, 0.5], [0, 0.42], [255, 0.25]];
export const VARIANTS = ["plain", "rising", "falling", "level"];

export function ruleRGB(rule) {
  const [towards, share] = TOWARDS[ruleVariant(rule)];
  return HUES[rule % 8].map((part) => Math.round(part + (towards - part) * share));
}

export function ruleVariant(rule) {
  return Math.floor(rule / 8) % 4;
}

export function ruleColour(rule) {
  return rule < 0 ? themeColour("null") : `rgb(${ruleRGB(rule).join(" ")})`;
}

/** Black or white, whichever is read more easily on the colour of a rule. */
export function ruleInk(rule) {
  if (rule < 0) return themeColour("soft");
  const [r, g, b] = ruleRGB(rule);
  return 0.299 * r + 0.587 * g + 0.114 * b > 128 ? "#111" : "#fff";
}

export function swatch(rule) {
  const node = el("span", {
    class: `swatch ${rule < 0 ? "none" : VARIANTS[ruleVariant(rule)]}`, "aria-hidden": "true",
    text: rule < 0 ? "–" : rule,
  });
  node.style.backgroundColor = ruleColour(rule);
  node.style.color = ruleInk(rule);
  return node;
}

/** A rule's name. Names that were never given ("rule 3") and given ones look alike. */
export function ruleName(model, rule) {
  return rule < 0 ? "nothing" : model.rules[rule] ?? `rule ${rule}`;
}

/** Swatch and name. */
export function ruleTag(model, rule) {
  const name = el("span", { text: ruleName(model, rule) });
  return el("span", { class: "rule-tag" }, swatch(rule), name);
}

let themed = {};

/** A colour of the style sheet, for drawing on a canvas. */
export function themeColour(name) {
  themed[name] ??= getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  return themed[name];
}

window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  themed = {};
  emit("theme");
});
