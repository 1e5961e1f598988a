// What is shown, as plain values that fit into the address, and who wants to know when it changes.

export const TABS = ["why", "whatif", "rules", "play", "compare"];

export const state = {
  model: 0, episode: 0, t: 0, edits: {}, tab: "why", with: null, slot: null, stage: 0,
};

const listeners = new Map();

/** Listen to events, named with spaces between them. */
export function on(events, listener) {
  for (const event of events.split(" ")) {
    listeners.set(event, [...(listeners.get(event) ?? []), listener]);
  }
}

export function emit(event, value) {
  for (const listener of listeners.get(event) ?? []) listener(value);
}

/** JSON with sorted keys and no spaces: equal values give equal text. */
export function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const keys = Object.keys(value).filter((key) => value[key] !== undefined).sort();
  return `{${keys.map((key) => `${JSON.stringify(key)}:${canonical(value[key])}`).join(",")}}`;
}

function toBase64url(text) {
  const bytes = new TextEncoder().encode(text);
  const plain = btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
  return plain.replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
}

function fromBase64url(text) {
  const plain = atob(text.replace(/-/g, "+").replace(/_/g, "/"));
  return new TextDecoder().decode(Uint8Array.from(plain, (letter) => letter.charCodeAt(0)));
}

export function writeAddress(values) {
  const parts = [`model=${values.model}`, `episode=${values.episode}`, `t=${values.t}`];
  if (values.tab !== "why") parts.push(`tab=${values.tab}`);
  if (values.slot !== null) parts.push(`slot=${values.slot}`);
  if (values.stage) parts.push(`stage=${values.stage}`);
  if (values.with !== null) parts.push(`with=${values.with}`);
  if (Object.keys(values.edits).length) parts.push(`edits=${toBase64url(canonical(values.edits))}`);
  return parts.join("&");
}

/** The values in a fragment; what is missing or makes no sense is left out. */
export function readAddress(fragment) {
  const given = new URLSearchParams(fragment.replace(/^#/, ""));
  const values = {};
  for (const name of ["model", "episode", "t", "slot", "stage", "with"]) {
    if (/^\d{1,9}$/.test(given.get(name) ?? "")) values[name] = Number(given.get(name));
  }
  if (TABS.includes(given.get("tab"))) values.tab = given.get("tab");
  if (given.has("edits")) {
    try {
      const edits = JSON.parse(fromBase64url(given.get("edits")));
      if (edits && typeof edits === "object" && !Array.isArray(edits)) values.edits = edits;
    } catch {
      // An address that was cut short still opens, without its edits.
    }
  }
  return values;
}
