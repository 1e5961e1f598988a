"""Algorithms 1 and 2 as plain loops over batch elements, stages, slots and rules.

The second implementation that the layers are compared with. It reads a layer's parameters but
calls none of its code. Wherever the paper writes an index (p, r, c) there is a list of scalars, 1
at the index and 0 elsewhere, whose gradient is that of the softmax: hard + soft - soft.detach().

Noise is a tensor (*lead, K, U) of uniform numbers. Row k belongs to stage k and is read in order:

- Algorithm 1: for each slot, for each rule, one for the pair; then for each slot, one for it as
  context; with dropout, then for each slot, for each rule, one that drops the score if below p.
- Algorithm 2: for each slot, one for the rules' side and one for the null rule's side; then for
  each slot, for each rule, one; then for each slot, for each slot as its context, one; with
  dropout, then for each slot, for each rule, one.

With dropout of contexts, last one more for each score of a context.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn


class Outcome(NamedTuple):
    slots: Tensor  # (*lead, M, D)
    rule: Tensor  # (*lead, K, M), -1 where nothing fired
    context: Tensor  # (*lead, K, M), -1 where nothing fired or nothing was allowed
    rule_scores: Tensor  # (*lead, K, M, N)
    context_scores: Tensor  # (*lead, K, M, M), zero rows where nothing fired


class Stage(NamedTuple):
    slots: list[Tensor]
    rule: list[int]
    context: list[int]
    rule_scores: list[list[Tensor]]
    context_scores: list[list[Tensor]]


def sequential(layer: nn.Module, slots: Tensor, **call: object) -> Outcome:
    """Algorithm 1. `call`: selection, slot_mask, noise, disabled (rules that may not fire)."""
    return over_batch(sequential_stage, layer, slots, **call)


def parallel(layer: nn.Module, slots: Tensor, **call: object) -> Outcome:
    """Algorithm 2, with the same arguments."""
    return over_batch(parallel_stage, layer, slots, **call)


def over_batch(
    stage: Callable[..., Stage],
    layer: nn.Module,
    slots: Tensor,
    selection: Tensor | Callable[[Tensor], Tensor] | None = None,
    slot_mask: Tensor | None = None,
    noise: Tensor | None = None,
    disabled: tuple[int, ...] = (),
) -> Outcome:
    lead, (m, d) = slots.shape[:-2], slots.shape[-2:]
    n, stages = layer.rules.embedding.shape[0], layer.stages
    enabled = [i not in disabled for i in range(n)]
    rows = slots.reshape(-1, m, d)
    masks = [[True] * m] * len(rows) if slot_mask is None else slot_mask.reshape(-1, m).tolist()
    new, rule, context, rule_scores, context_scores = [], [], [], [], []
    for b in range(len(rows)):
        alive = masks[b]
        # What a masked slot holds must not matter: it is all zero until it is given back.
        state = [rows[b, j] if alive[j] else rows.new_zeros(d) for j in range(m)]
        for k in range(stages):
            if selection is None:
                seen = state
            elif isinstance(selection, Tensor):
                seen = list(selection.reshape(-1, m, selection.shape[-1])[b])
            else:
                seen = list(selection(torch.stack(state)))
            seen = [seen[j] if alive[j] else torch.zeros_like(seen[j]) for j in range(m)]
            row = (
                None if noise is None else iter(noise.reshape(len(rows), stages, -1)[b, k].tolist())
            )
            done = stage(layer, state, seen, alive, enabled, row)
            assert row is None or next(row, None) is None, "a stage reads all of its numbers"
            state = done.slots
            rule.append(done.rule)
            context.append(done.context)
            rule_scores.append(torch.stack([torch.stack(r) for r in done.rule_scores]))
            context_scores.append(torch.stack([torch.stack(r) for r in done.context_scores]))
        new.append(torch.stack([state[j] if alive[j] else rows[b, j] for j in range(m)]))
    return Outcome(
        torch.stack(new).reshape(slots.shape),
        torch.tensor(rule).reshape(*lead, stages, m),
        torch.tensor(context).reshape(*lead, stages, m),
        torch.stack(rule_scores).reshape(*lead, stages, m, n),
        torch.stack(context_scores).reshape(*lead, stages, m, m),
    )


def sequential_stage(
    layer: nn.Module,
    slots: list[Tensor],
    seen: list[Tensor],
    alive: list[bool],
    enabled: list[bool],
    row: Iterator[float] | None,
) -> Stage:
    m, n = len(slots), len(enabled)
    pair_noise = [take(row, n) for _ in range(m)]
    context_noise = take(row, m)

    # Step 2: a {rule, primary slot} pair.
    k = [project(layer.select.key, layer.rules.embedding[i]) for i in range(n)]
    q = [project(layer.select.query, seen[j]) for j in range(m)]
    scores = [[dot(q[j], k[i]) for i in range(n)] for j in range(m)]
    kept = drop(scores, row, layer.dropout)
    flat = choose(
        [kept[j][i] for j in range(m) for i in range(n)],
        [alive[j] and enabled[i] for j in range(m) for i in range(n)],
        None if row is None else [u for numbers in pair_noise for u in numbers],
        layer.temperature,
    )
    pair = [flat[j * n : (j + 1) * n] for j in range(m)]
    primary = [sum(pair[j]) for j in range(m)]
    rule = [sum(pair[j][i] for j in range(m)) for i in range(n)]
    p, r = winner(primary), winner(rule)

    # Step 3: a contextual slot.
    q_p = project(layer.bind.query, mix(primary, seen))
    k = [project(layer.bind.key, seen[j]) for j in range(m)]
    context_scores = [dot(q_p, k[j]) for j in range(m)]
    may = [p >= 0 and alive[j] and (layer.self_context or j != p) for j in range(m)]
    (kept,) = drop([context_scores], row, layer.context_dropout)
    context = choose(kept, may, context_noise, layer.temperature)

    # Step 4: the rule changes the primary slot.
    update = act_in(layer, rule, mix(primary, slots), context, slots)
    nothing = [torch.zeros_like(s) for s in context_scores]
    return Stage(
        [slots[j] + primary[j] * update for j in range(m)],
        [r if j == p else -1 for j in range(m)],
        [winner(context) if j == p else -1 for j in range(m)],
        scores,
        [context_scores if j == p else nothing for j in range(m)],
    )


def parallel_stage(
    layer: nn.Module,
    slots: list[Tensor],
    seen: list[Tensor],
    alive: list[bool],
    enabled: list[bool],
    row: Iterator[float] | None,
) -> Stage:
    m, n, rules = len(slots), len(enabled), layer.rules
    bid_noise = [take(row, 2) for _ in range(m)]
    rule_noise = [take(row, n) for _ in range(m)]
    context_noise = [take(row, m) for _ in range(m)]

    # Step 2: the primary slots. The concatenation and its matrix are formed as they are written.
    concatenated = torch.cat([rules.embedding[i] for i in range(n)])
    matrix = torch.cat([rules.applicability[i] for i in range(n)])
    r_a = concatenated @ matrix + rules.retired
    primary = []
    for j in range(m):
        k_j = project(layer.slot_key, seen[j])
        bids = [dot(r_a, k_j), dot(layer.null_rule, k_j) - layer.null_handicap]
        won, _ = choose(bids, [True, True], bid_noise[j], layer.temperature)
        primary.append(won if alive[j] and any(enabled) else torch.zeros_like(won))

    # Step 3: a rule for each.
    k = [project(layer.select.key, rules.embedding[i]) for i in range(n)]
    q = [project(layer.select.query, seen[j]) for j in range(m)]
    scores = [[dot(q[j], k[i]) for i in range(n)] for j in range(m)]
    kept = drop(scores, row, layer.dropout)

    # Steps 4 and 5: a context for each, and all changes at once.
    q = [project(layer.bind.query, seen[j]) for j in range(m)]
    k = [project(layer.bind.key, seen[j]) for j in range(m)]
    all_scores = [[dot(q[j], k[i]) for i in range(m)] for j in range(m)]
    kept_scores = drop(all_scores, row, layer.context_dropout)
    new, fired, contexts, context_scores = [], [], [], []
    for j in range(m):
        may = [alive[j] and e for e in enabled]
        rule = choose(kept[j], may, rule_noise[j], layer.temperature)
        scores_j = all_scores[j]
        may = [alive[i] and (layer.self_context or i != j) for i in range(m)]
        context = choose(kept_scores[j], may, context_noise[j], layer.temperature)
        update = act_in(layer, rule, slots[j], context, slots)
        new.append(slots[j] + primary[j] * update)
        fires = primary[j].item() > 0.5
        fired.append(winner(rule) if fires else -1)
        contexts.append(winner(context) if fires else -1)
        context_scores.append(scores_j if fires else [torch.zeros_like(s) for s in scores_j])
    return Stage(new, fired, contexts, scores, context_scores)


# -- the pieces ------------------------------------------------------------------------------------


def take(row: Iterator[float] | None, count: int) -> list[float] | None:
    return None if row is None else [next(row) for _ in range(count)]


def gamma(u: float) -> float:
    """Gumbel(0, 1) from a uniform number, kept off 0 and 1 as far as float32 can tell them."""
    u = min(max(u, 2.0**-25), 1.0 - 2.0**-24)
    return -math.log(-math.log(u))


def choose(
    scores: list[Tensor], may: list[bool], noise: list[float] | None, temperature: float
) -> list[Tensor]:
    """The straight-through one-hot of the best allowed score; all zero if nothing is allowed."""
    some = [i for i in range(len(scores)) if may[i]]
    one_hot = [torch.zeros_like(s) for s in scores]
    if not some:
        return one_hot
    noisy = {i: scores[i] if noise is None else scores[i] + gamma(noise[i]) for i in some}
    best = max(some, key=lambda i: noisy[i].item())
    weight = {i: ((noisy[i] - noisy[best].detach()) / temperature).exp() for i in some}
    total = sum(weight.values())
    for i in some:
        soft = weight[i] / total
        one_hot[i] = (1.0 if i == best else 0.0) + soft - soft.detach()
    return one_hot


def winner(one_hot: list[Tensor]) -> int:
    ones = [i for i in range(len(one_hot)) if one_hot[i].item() > 0.5]
    return ones[0] if ones else -1


def drop(scores: list[list[Tensor]], row: Iterator[float] | None, p: float) -> list[list[Tensor]]:
    """Dropout of scores: zero with probability p, divided by 1 - p otherwise; training only."""
    if row is None or p == 0:
        return scores
    return [
        [torch.zeros_like(s) if next(row) < p else s / (1 - p) for s in line] for line in scores
    ]


def project(module: nn.Module, x: Tensor) -> Tensor:
    if getattr(module, "hidden", None) is not None:
        x = linear(module.hidden, x)
        x = x * (x > 0)
    return linear(module.out, x)


def linear(module: nn.Module, x: Tensor) -> Tensor:
    y = x @ module.weight.t()
    return y if module.bias is None else y + module.bias


def act(rules: nn.Module, rule: list[Tensor], primary: Tensor, context: Tensor) -> Tensor:
    """Sum over rules of one-hot times MLP_i([primary, context])."""
    x = torch.cat([primary, context])
    outputs = []
    for i in range(len(rule)):
        hidden = x @ rules.weight_in[i] + rules.bias_in[i]
        hidden = hidden * (hidden > 0)
        outputs.append(hidden @ rules.weight_out[i] + rules.bias_out[i])
    return mix(rule, outputs)


def act_in(
    layer: nn.Module,
    rule: list[Tensor],
    primary: Tensor,
    context: list[Tensor],
    slots: list[Tensor],
) -> Tensor:
    """The rule in the mixed context, or the mix of what it does in each context."""
    if layer.context_gradient == "slot" or winner(context) < 0:
        return act(layer.rules, rule, primary, mix(context, slots))
    return mix(context, [act(layer.rules, rule, primary, slot) for slot in slots])


def dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum()


def mix(one_hot: list[Tensor], values: list[Tensor]) -> Tensor:
    total = torch.zeros_like(values[0])
    for chosen, value in zip(one_hot, values, strict=True):
        total = total + chosen * value
    return total
