// What happens in the step that follows, as one line under the frames.
import { ruleColour, ruleName } from "./colours.js";
import { byId, el } from "./dom.js";
import { firings } from "./playback.js";
import { model, session, shown } from "./session.js";
import { state } from "./state.js";

const TRULY = "What happens in the true world, whatever the model predicts";

export function tellNow() {
  const play = shown();
  const line = byId("now");
  if (!play) return;
  const { t } = state;
  const parts = [];
  const say = (text, kind = "") => parts.push(el("span", { class: kind, text }));
  if (t >= play.steps) {
    say(play === session.world ? "Your move." : `The last frame of ${play.steps + 1}.`, "soft");
  } else {
    if (play.actions?.[t] >= 0) say((play.actionNames ?? model().actions)[play.actions[t]] ?? "", "tag");
    const fired = grouped(firings(play, t));
    for (const group of fired.slice(0, 3)) parts.push(firing(play, group));
    if (fired.length > 3) say(`and ${fired.length - 3} more`, "soft");
    if (play.hasRules && !fired.length) say("no rule fires", "soft");
    if (play.events[t] && play.events[t] !== parts[0]?.textContent) {
      say(`truly: ${play.events[t]}`, "soft");
      parts.at(-1).title = TRULY;
    }
  }
  const told = parts.map((part) => part.textContent).join("");
  if (line.textContent !== told) line.replaceChildren(...parts);
}

/** Slots that the same rule changes, reading the same, are one group. */
function grouped(fired) {
  let groups = groupBy(fired, ({ rule, context, slot }) =>
    `${rule} ${context === slot ? "itself" : context}`);
  // Where a rule reads many slots, which one it reads is left to the arrows.
  if (groups.length > 2) {
    groups = groupBy(fired.map((each) => ({ ...each, context: -1 })), ({ rule }) => rule);
  }
  // The rarest first: it is what happens; the others mostly keep things as they are.
  return groups.sort((a, b) => a.slots.length - b.slots.length);
}

function groupBy(fired, keyOf) {
  const groups = new Map();
  for (const each of fired) {
    const key = keyOf(each);
    if (!groups.has(key)) groups.set(key, { ...each, slots: [] });
    const { slots } = groups.get(key);
    if (!slots.includes(each.slot)) slots.push(each.slot);
  }
  return [...groups.values()];
}

function firing(play, { rule, context, slots }) {
  const dot = el("i", { class: "dot" });
  dot.style.background = ruleColour(rule);
  const names = slots.length > 2 ? `${slots.length} slots`
    : slots.map((slot) => play.slotNames[slot]).join(" and ");
  const verb = model().forces?.context === false ? "chosen by" : "reading";
  const reads = context < 0 ? "" : slots.includes(context) ? ", reading itself"
    : `, ${verb} ${play.slotNames[context]}`;
  return el("span", {}, dot, el("b", { text: ruleName(model(), rule) }), ` on ${names}${reads}`);
}
