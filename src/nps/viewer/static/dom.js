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

/** The context of a canvas as large as it is shown, in CSS pixels. */
export function sharp(canvas, width, height) {
  const scale = window.devicePixelRatio || 1;
  const [w, h] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== w) canvas.width = w;
  if (canvas.height !== h) canvas.height = h;
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

/** Text as far as it fits on a canvas. */
export function fitted(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let end = text.length;
  while (end > 1 && context.measureText(`${text.slice(0, end)}…`).width > width) end -= 1;
  return end > 2 ? `${text.slice(0, end)}…` : "";
}

/** A number as people write it: three digits that mean something, a true minus. */
export function number(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
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

/** A bar from 0 to `share` of its track. */
export function bar(share, colour) {
  const inside = el("span", { class: "bar-fill" });
  inside.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  if (colour) inside.style.background = colour;
  return el("span", { class: "bar", "aria-hidden": "true" }, inside);
}

/** A bar that grows left or right of the middle; `share` is from -1 to 1. */
export function deviation(share, colour) {
  const size = Math.min(1, Math.abs(share)) * 50;
  const inside = el("span", { class: "bar-fill" });
  inside.style.width = `${size}%`;
  inside.style.left = `${share < 0 ? 50 - size : 50}%`;
  if (colour) inside.style.background = colour;
  return el("span", { class: "bar middle", "aria-hidden": "true" }, inside);
}

/** A menu of [value, text] pairs. */
export function menu(label, options, props = {}) {
  const node = el("select", { "aria-label": label, ...props, value: null });
  node.append(...options.map(([value, text]) => el("option", { value, text })));
  if (props.value !== undefined && props.value !== null) node.value = props.value;
  return node;
}

/** Names as options whose values are their indices. */
export function indexed(names) {
  return names.map((name, i) => [i, name]);
}
