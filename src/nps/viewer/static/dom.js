// Small helpers to build the page. Text is always set as text, never parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";

export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.className = value;
    else if (name === "text") node.textContent = value;
    else if (name === "value") node.value = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

/** A paragraph: "lead" is read first, "soft" may be skipped, "note" stands out. */
export function para(words, kind = "soft") {
  return el("p", { class: kind, text: words });
}

export function section(title, ...children) {
  return el("section", {}, el("h3", { text: title }), ...children);
}

/** Controls with a name beside them. */
export function field(text, ...controls) {
  return el("label", {}, el("span", { text }), controls);
}

/** A row of a table: its head, then cells of text or nodes. */
export function row(head, ...cells) {
  return el("tr", {}, el("th", {}, head), cells.map((cell) => el("td", {}, cell)));
}

export function svg(tag, attributes = {}) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

export function byId(id) {
  return document.getElementById(id);
}

/** Replace what a panel shows; the control that had the focus keeps it if it is there again. */
export function fill(panel, ...children) {
  const focused = panel.contains(document.activeElement) ? document.activeElement : null;
  const key = focused?.dataset.key;
  panel.replaceChildren(...children.flat().filter((child) => child !== null));
  if (key) panel.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus({ preventScroll: true });
}

/** A dialog over the page, gone once it is closed. */
export function openSheet(title, ...content) {
  const sheet = el("dialog", {
    class: "sheet", "aria-label": title, onclose: () => sheet.remove(),
    onclick: (event) => { if (event.target === sheet) sheet.close(); },
  }, el("h2", { text: title }), ...content,
  el("form", { method: "dialog" }, el("button", { text: "Close" })));
  document.body.append(sheet);
  sheet.showModal();
  return sheet;
}

export function clamp(value, low, high) {
  return Math.max(low, Math.min(high, value));
}

/** A number as people write it: three digits that mean something, a true minus. */
export function number(value, digits = 3) {
  if (Number.isNaN(value ?? NaN)) return "–";
  const size = Math.abs(value);
  if (size > 0 && (size >= 1e5 || size < 1e-3)) {
    return value.toExponential(1).replace("e+", "e").replace(/-/g, "−");
  }
  const places = size >= 100 ? 0 : size >= 10 ? 1 : Math.max(0, digits - 1);
  return value.toFixed(size < 0.1 && size > 0 ? digits : places).replace("-", "−");
}

export function signed(value) {
  return value > 0 ? `+${number(value)}` : number(value);
}

export function percent(share) {
  return share > 0 && share < 0.01 ? "< 1 %" : `${Math.round(100 * share)} %`;
}

let hiding = 0;

/** One line at the foot of the page, gone after a while. */
export function say(text, kind = "note") {
  const line = byId("message");
  line.textContent = text;
  line.className = kind;
  line.hidden = false;
  clearTimeout(hiding);
  hiding = setTimeout(() => { line.hidden = true; }, kind === "error" ? 9000 : 4000);
}

function track(kind, left, width, colour) {
  const inside = el("span", { class: "bar-fill" });
  inside.style.left = `${left}%`;
  inside.style.width = `${width}%`;
  if (colour) inside.style.background = colour;
  return el("span", { class: kind, "aria-hidden": "true" }, inside);
}

/** A bar from 0 to `share` of its track. */
export function bar(share, colour) {
  return track("bar", 0, 100 * clamp(share, 0, 1), colour);
}

/** A bar that grows left or right of the middle; `share` is from -1 to 1. */
export function deviation(share, colour) {
  const size = 50 * Math.min(1, Math.abs(share));
  return track("bar middle", share < 0 ? 50 - size : 50, size, colour);
}

/** A menu of [value, text] pairs; `onpick` is given the value as a number, or null of "". */
export function menu(label, options, { value, onpick, ...props } = {}) {
  const node = el("select", {
    "aria-label": label, ...props,
    onchange: () => onpick(node.value === "" ? null : Number(node.value)),
  }, options.map(([each, text]) => el("option", { value: each, text })));
  if (value !== undefined) node.value = value;
  return node;
}

/** Names as options whose values are their indices. */
export function indexed(names) {
  return names.map((name, i) => [i, name]);
}
