// One picture of a frame: pixels as they are, over them where slots look, and over that the slots'
// places with an arrow from what a rule reads to what it changes.
import { ruleColour, ruleInk } from "./colours.js";
import { clamp, el, number, svg } from "./dom.js";
import { emit } from "./state.js";

const DARKNESS = 0.78;

export class Picture {
  /** Of "true" or "predicted" frames. */
  constructor(kind) {
    this.kind = kind;
    this.base = el("canvas", { class: "pixels", role: "img" });
    this.shade = el("canvas", { class: "shade", hidden: true });
    this.over = svg("svg", { class: "over", "aria-hidden": "true" });
    this.caption = el("span", { class: "caption" });
    this.badge = el("span", { class: "badge" });
    this.screen = el("div", { class: "screen" }, this.base, this.shade, this.over);
    this.node = el("figure", {}, el("figcaption", {}, this.caption, this.badge), this.screen);
    this.arrows = svg("g");
    this.rings = svg("g");
    this.over.append(this.arrows, this.rings);
    this.drawn = null;
    this.size = [0, 0]; // of the screen, kept here: to ask for it between changes costs a layout
    new ResizeObserver(([entry]) => {
      this.size = [entry.contentRect.width, entry.contentRect.height];
      emit("sheet");
    }).observe(this.screen);
  }

  prepare({ width, height }, caption) {
    if (this.base.width !== width || this.base.height !== height) {
      this.base.width = width;
      this.base.height = height;
      this.drawn = null;
    }
    this.node.style.setProperty("--ratio", width / height);
    this.caption.textContent = caption;
    this.base.setAttribute("aria-label", `${caption} frame`);
  }

  /** Draw where the frame is; false if it has not come yet: then the last one stays. */
  draw(frame) {
    this.screen.classList.toggle("waiting", frame === null);
    if (!frame) return false;
    const { image, x, y } = frame;
    if (this.drawn?.image === image && this.drawn.x === x && this.drawn.y === y) return true;
    this.drawn = frame;
    const { width, height } = this.base;
    const context = this.base.getContext("2d");
    context.drawImage(image, x, y, width, height, 0, 0, width, height);
    return true;
  }

  /** Say whether the frame is right, or else its error, as far as they are known. */
  mark({ right = null, error = null, name }) {
    const verdict = right === null ? "" : right ? "right" : "wrong";
    const amount = error === null ? "" : number(error);
    this.badge.className = `badge ${verdict}`;
    if (verdict) {
      const word = el("span", { class: "word", text: ` ${verdict}` });
      this.badge.replaceChildren(right ? "✓" : "✗", word);
    } else this.badge.textContent = amount;
    this.badge.title = amount && `${name} ${amount}`;
    this.screen.classList.toggle("wrong", right === false);
  }

  /** Leave light what some slots look at. */
  light(masks, size, slots) {
    this.shade.hidden = !masks || !slots.length;
    if (this.shade.hidden) return;
    const [height, width] = size;
    this.shade.width = width;
    this.shade.height = height;
    const row = rowOfMasks(masks, width, height);
    const image = new ImageData(width, height);
    for (let y = 0; y < height; y += 1) {
      for (let x = 0; x < width; x += 1) {
        let most = 0;
        for (const slot of slots) {
          most = Math.max(most, row.data[4 * (y * row.width + slot * width + x)]);
        }
        image.data[4 * (y * width + x) + 3] = DARKNESS * (255 - most);
      }
    }
    this.shade.getContext("2d").putImageData(image, 0, 0);
  }

  /** Slots' places: {slot, name, at: [row, column], rule, chosen}, and arrows between places. */
  overlay(marks, arrows) {
    const [width, height] = this.size;
    this.over.setAttribute("viewBox", `0 0 ${width || 1} ${height || 1}`);
    if (!width || (!marks.length && !this.rings.childNodes.length)) return;
    const radius = clamp(width / 26, 8, 13);
    const at = (place) => [place[1] * width, place[0] * height];
    const drawn = JSON.stringify([marks, arrows, width]);
    if (drawn === this.overlaid) return;
    this.overlaid = drawn;
    this.arrows.replaceChildren(
      ...arrows.flatMap(({ from, to, rule, faint }) =>
        arrow(at(from), at(to), radius, ruleColour(rule), faint)),
    );
    while (this.rings.childNodes.length > marks.length) this.rings.lastChild.remove();
    while (this.rings.childNodes.length < marks.length) {
      const group = svg("g", { class: "slot-mark" });
      group.append(svg("circle", { class: "halo" }), svg("circle"), svg("text"));
      this.rings.append(group);
    }
    marks.forEach((mark, i) => {
      const group = this.rings.childNodes[i];
      const [x, y] = at(mark.at);
      group.setAttribute("transform", `translate(${x.toFixed(1)} ${y.toFixed(1)})`);
      group.dataset.slot = mark.slot;
      group.classList.toggle("chosen", mark.chosen);
      group.classList.toggle("fired", mark.rule >= 0);
      const [halo, disc, text] = group.childNodes;
      halo.setAttribute("r", radius + (mark.chosen ? 4 : 1.5));
      disc.setAttribute("r", radius);
      disc.style.fill = mark.rule >= 0 ? ruleColour(mark.rule) : "";
      text.style.fill = mark.rule >= 0 ? ruleInk(mark.rule) : "";
      text.style.fontSize = `${radius * 1.15}px`;
      text.textContent = mark.slot;
    });
  }

  /** The share of the picture's sides that a pointer is at: row, column. */
  place(event) {
    const box = this.screen.getBoundingClientRect();
    return [
      clamp((event.clientY - box.top) / box.height, 0, 1),
      clamp((event.clientX - box.left) / box.width, 0, 1),
    ];
  }
}

let scratch = null;

function rowOfMasks({ image, y }, width, height) {
  const wide = image.width;
  scratch ??= document.createElement("canvas");
  if (scratch.width !== wide || scratch.height !== height) {
    scratch.width = wide;
    scratch.height = height;
  }
  const context = scratch.getContext("2d", { willReadFrequently: true });
  context.drawImage(image, 0, y, wide, height, 0, 0, wide, height);
  return context.getImageData(0, 0, wide, height);
}

/** A curve from ring to ring with a head, on a light edge so that it is seen on any frame. There
 * and back do not lie on each other. */
function arrow([x0, y0], [x1, y1], radius, colour, faint) {
  const length = Math.hypot(x1 - x0, y1 - y0);
  if (length < 2 * radius + 4) return [];
  const bend = Math.min(26, length * 0.16);
  const [mx, my] = [
    (x0 + x1) / 2 - ((y1 - y0) / length) * bend, (y0 + y1) / 2 + ((x1 - x0) / length) * bend,
  ];
  const [sx, sy] = towards([x0, y0], [mx, my], radius + 2);
  const [bx, by] = towards([x1, y1], [mx, my], radius + 3);
  const [cx, cy] = towards([x1, y1], [mx, my], 1.75 * radius + 3);
  const [dx, dy] = [(bx - cx) * 0.58, (by - cy) * 0.58]; // half as wide as the head is long
  const line = `M${sx} ${sy}Q${mx} ${my} ${cx} ${cy}`;
  const head = `M${bx} ${by}L${cx - dy} ${cy + dx}L${cx + dy} ${cy - dx}Z`;
  const group = svg("g", { class: faint ? "faint" : "" });
  const shaft = svg("path", { class: "arrow", d: line });
  const tip = svg("path", { d: head });
  shaft.style.stroke = colour;
  tip.style.fill = colour;
  group.append(svg("path", { class: "arrow-edge", d: line + head }), shaft, tip);
  return [group];
}

/** The point that is `far` from one point on the way to another. */
function towards([x, y], [tx, ty], far) {
  const share = far / (Math.hypot(tx - x, ty - y) || 1);
  return [x + (tx - x) * share, y + (ty - y) * share];
}
