// How the page asks: JSON by POST with the token of `nps view`, or, in a frozen page, the answers
// that were stored with it.
import { canonical } from "./state.js";

const NO_TOKEN = "Open the address that nps view printed: it carries the token";

class AskError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

const stored = readStored();
export const frozen = stored !== null;
export const frozenStart = stored?.start ?? {};
export const token = takeToken();

function readStored() {
  const node = document.getElementById("frozen");
  if (!node) return null;
  const { answers, start } = JSON.parse(node.textContent);
  const tidied = Object.entries(answers).map(([key, answer]) => [inOrder(key), answer]);
  return { answers: new Map(tidied), start };
}

function keyOf(route, body) {
  return `${route}\n${canonical(body)}`;
}

/** A key as another language wrote it, in this one's canonical form. */
function inOrder(key) {
  const [route, body] = key.split("\n");
  return keyOf(route, JSON.parse(body));
}

/** From the fragment, which no server or log sees, into this tab's storage. */
function takeToken() {
  if (frozen) return null;
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  try {
    if (given) sessionStorage.setItem("nps-token", given);
    return given ?? sessionStorage.getItem("nps-token");
  } catch {
    return given; // no storage in a sandbox
  }
}

/** Whether a frozen page knows the answer; a live one can always ask. */
export function isKnown(route, body) {
  return !frozen || stored.answers.has(keyOf(route, body));
}

function fromStore(route, body) {
  let answer = stored.answers.get(keyOf(route, body));
  if (answer?.as !== undefined) answer = stored.answers.get(inOrder(answer.as)); // equal to another
  if (answer === undefined) {
    throw new AskError("This page is frozen: this needs nps view", 0);
  }
  return answer;
}

async function post(route, body) {
  let response;
  try {
    response = await fetch(route, {
      method: "POST",
      headers: { "Content-Type": "application/json", Authorization: `Bearer ${token}` },
      body: JSON.stringify(body),
    });
  } catch {
    throw new AskError("nps view does not answer: is it still running?", 0);
  }
  if (response.ok) return response;
  let reason = `${response.status} ${response.statusText}`;
  try {
    reason = (await response.json()).error ?? reason;
  } catch {
    // Not JSON: the status has to do.
  }
  if (response.status === 401) reason = NO_TOKEN;
  throw new AskError(reason, response.status);
}

export async function ask(route, body = {}) {
  if (frozen) return fromStore(route, body);
  return (await post(route, body)).json();
}

export async function askBlob(route, body) {
  if (frozen) return dataBlob(fromStore(route, body).image);
  return (await post(route, body)).blob();
}

export async function askImage(route, body) {
  return createImageBitmap(await askBlob(route, body));
}

/** The bytes of a data: address, read without the network. */
function dataBlob(address) {
  const comma = address.indexOf(",");
  const bytes = Uint8Array.from(atob(address.slice(comma + 1)), (letter) => letter.charCodeAt(0));
  return new Blob([bytes], { type: address.slice(5, address.indexOf(";")) });
}

export function dataImage(address) {
  return createImageBitmap(dataBlob(address));
}
