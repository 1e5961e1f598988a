// Sheets of frames: fetched when needed, newest wish first, and forgotten when they take too much
// memory. Long episodes are streamed so.
import { askImage } from "./api.js";
import { emit } from "./state.js";

const MOST_BYTES = 128 * 2 ** 20;
const AT_ONCE = 3;
const MOST_WISHES = 12;

const kept = new Map(); // key → bitmap, the least recently used first
const wishes = new Map(); // key → what to ask for, the newest last
const underway = new Set();
const failed = new Set();
let bytes = 0;

/** A sheet if it is here; else it is asked for, and "sheet" is emitted when it came. */
export function sheet(play, kind, index) {
  const key = `${play}/${kind}/${index}`;
  const found = kept.get(key);
  if (found) {
    kept.delete(key);
    kept.set(key, found);
    return found;
  }
  if (!underway.has(key) && !failed.has(key)) {
    wishes.delete(key);
    wishes.set(key, { play, kind, sheet: index });
    // Those scrubbed past long ago are not needed any more.
    if (wishes.size > MOST_WISHES) wishes.delete(wishes.keys().next().value);
    fetchNext();
  }
  return null;
}

export function sheetsUnderway() {
  return underway.size + wishes.size;
}

/** Bytes of the sheets that are kept. */
export function sheetBytes() {
  return bytes;
}

function fetchNext() {
  while (underway.size < AT_ONCE && wishes.size) {
    const [key, wish] = [...wishes].pop();
    wishes.delete(key);
    underway.add(key);
    fetchSheet(key, wish);
  }
}

async function fetchSheet(key, wish) {
  try {
    keep(key, await askImage("/api/frames", wish));
  } catch (error) {
    failed.add(key);
    emit("lost", { play: wish.play, error });
  }
  underway.delete(key);
  fetchNext();
  emit("sheet");
}

function keep(key, bitmap) {
  kept.set(key, bitmap);
  bytes += 4 * bitmap.width * bitmap.height;
  for (const [oldest, old] of kept) {
    if (bytes <= MOST_BYTES || oldest === key) break;
    kept.delete(oldest);
    bytes -= 4 * old.width * old.height;
    old.close();
  }
}

/** Ask again for what failed, as after the server forgot a playback. */
export function forgiveSheets(play) {
  for (const key of failed) if (key.startsWith(`${play}/`)) failed.delete(key);
}
