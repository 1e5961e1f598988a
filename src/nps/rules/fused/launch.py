"""The fused stage on a GPU: which sizes the Triton kernels serve, and their calls.

The functions stand in for those of the same purpose in `sequential.py`, `parallel.py` and
`action.py`: same arguments, same results.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nps.rules.fused import calls, grouped, masked
from nps.rules.fused.inputs import Grads, Inputs

if TYPE_CHECKING:
    from jaxtyping import Float, Int

GROUPED_FROM = 1024
"""Rows from which on they are sorted by rule for the rules' products."""
CHUNK = 16
"""Lines of a matrix that a program holds at a time."""


def opens(slots: Tensor) -> bool:
    """Does a single model get a leading dimension, as if it were several? Kernels know no other."""
    return slots.is_cuda


def serves(inputs: Inputs) -> bool:
    return inputs.slots.is_cuda and calls.installed() and fits(inputs)


def fits(inputs: Inputs) -> bool:
    (m, d), (n, h) = inputs.slots.shape[2:], inputs.bias_in.shape[1:]
    tiles = [(m, d), (m, n), (m, m), (CHUNK, h), (CHUNK, d)]
    single = inputs.slots.dtype == inputs.uniform.dtype == torch.float32
    return single and all(calls.power(a) * calls.power(b) <= calls.LARGEST_TILE for a, b in tiles)


def groups(inputs: Inputs, rule: Int[Tensor, "S T"]) -> bool:
    """Are the rows sorted by rule, or does one product serve all rules? They give the same."""
    few = inputs.weight_in.shape[1] <= grouped.MOST_RULES
    return few and rule.numel() >= GROUPED_FROM


def _tile(inputs: Inputs) -> dict[str, int]:
    """The sizes of a program that holds the slots of one element of the batch."""
    (_, _, m, d), n = inputs.slots.shape, inputs.weight_in.shape[1]
    powers = {"MP": calls.power(m), "DP": calls.power(d)}
    warps = max(1, min(8, max(CHUNK, powers["MP"]) * powers["DP"] // 512))
    return {"M": m, "N": n, "D": d, **powers, "num_warps": warps}


def _choice(inputs: Inputs) -> dict[str, Any]:
    """The sizes of a program that chooses, and what it is told about its settings."""
    return {
        **_tile(inputs),
        "NP": calls.power(inputs.weight_in.shape[1], least=16),
        "B": inputs.slots.shape[1],
        "uniform_stride": _noise(inputs).stride(1),
        "DROPS": inputs.drops(),
        "DROP_TENSOR": isinstance(inputs.dropout, Tensor),
    }


def _noise(inputs: Inputs) -> Tensor:
    """The uniform numbers, rows at equal distances."""
    uniform = inputs.uniform
    even = len(uniform) == 1 or uniform.stride(0) == uniform.shape[1] * uniform.stride(1)
    return uniform if even and uniform.stride(2) == 1 else uniform.contiguous()


def _choose(name: str, inputs: Inputs, given: tuple[Tensor, ...], out: tuple[Tensor, ...]) -> None:
    grid, allowed = (inputs.slots.shape[:2].numel(),), inputs.allowed
    anything = given[0] if allowed is None else allowed.contiguous()
    settings = {"SELF_CONTEXT": inputs.self_context, "ALL": allowed is None, **_choice(inputs)}
    inside = (*(x.contiguous() for x in given), _noise(inputs), anything, inputs.dropout)
    calls.call(name, grid, *inside, *out, **settings)


def _choose_gradient(
    name: str, inputs: Inputs, grads: Grads, given: tuple[Tensor, ...], out: tuple[Tensor, ...]
) -> None:
    """`given`: the matrices, what was chosen, then the gradients to x and to the rules."""
    grid, maps, chosen = (inputs.slots.shape[:2].numel(),), given[:-8], given[-8:-2]
    outer = (grads[0] if g is None else g.contiguous() for g in grads)
    settings = {
        "TEMPERATURE_TENSOR": isinstance(inputs.temperature, Tensor),
        "RULE_SCORES": grads[1] is not None,
        "CONTEXT_SCORES": grads[2] is not None,
        **_choice(inputs),
    }
    inside = (*(x.contiguous() for x in maps), _noise(inputs), inputs.temperature, inputs.dropout)
    calls.call(name, grid, *inside, *chosen, *outer, *given[-2:], *out, **settings)


def _change(
    name: str, inputs: Inputs, primary: Tensor, rule: Tensor, raw: Tensor
) -> tuple[Tensor, Tensor]:
    slots, (s, b, _, _) = inputs.slots, inputs.slots.shape
    new, update = torch.empty_like(slots), torch.empty_like(raw)
    given = slots, primary, rule, raw, inputs.bias_out.contiguous()
    calls.call(name, (s * b,), *given, new, update, B=b, **_tile(inputs))
    return new, update


# -- Algorithm 1 -----------------------------------------------------------------------------------


def choose_one(inputs: Inputs) -> tuple[Tensor, ...]:
    (s, b, m, d), n, new = inputs.slots.shape, inputs.rule_map.shape[1], inputs.slots.new_empty
    scores, noisy = new(s, b, m * n), new(s, b, m * n)
    matches, noisy_matches = new(s, b, m), new(s, b, m)
    pull, x = new(s, b, d), new(s, b, 2 * d)
    primary, rule, context = (new(s, b, dtype=torch.int64) for _ in range(3))
    out = scores, matches, primary, rule, context, noisy, noisy_matches, pull, x
    _choose("choose_one", inputs, (inputs.slots, inputs.rule_map, inputs.bind_map), out)
    return out


def change_one(
    inputs: Inputs, primary: Int[Tensor, "S B"], rule: Int[Tensor, "S B"], raw: Tensor
) -> tuple[Tensor, Tensor]:
    """New slots, and the update with its bias."""
    return _change("change_one", inputs, primary, rule, raw)


def choose_one_gradient(
    inputs: Inputs, grads: Grads, chosen: tuple[Tensor, ...], to_x: Tensor, to_rule: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """To the slots, to the scores and to what the slots were compared with."""
    _, _, noisy, _, pull, _ = chosen
    to_slots = inputs.slots.new_empty(inputs.slots.shape)
    out = to_slots, torch.empty_like(noisy), torch.empty_like(pull)
    given = inputs.slots, inputs.rule_map, inputs.bind_map, *chosen, to_x, to_rule
    _choose_gradient("choose_one_gradient", inputs, grads, given, out)
    return out


# -- Algorithm 2 -----------------------------------------------------------------------------------


def choose_each(inputs: Inputs, pull: Float[Tensor, "S B*M D"]) -> tuple[Tensor, ...]:
    (s, b, m, d), n, new = inputs.slots.shape, inputs.weight_in.shape[1], inputs.slots.new_empty
    scores, noisy = new(s, b, m, n), new(s, b, m, n)
    matches, noisy_matches = new(s, b, m, m), new(s, b, m, m)
    noisy_bids, x = new(s, b, m, 2), new(s, b * m, 2 * d)
    won = new(s, b, m, dtype=torch.bool)
    rule, context = (new(s, b, m, dtype=torch.int64) for _ in range(2))
    out = scores, matches, won, rule, context, noisy_bids, noisy, noisy_matches, x
    _choose("choose_each", inputs, (inputs.slots, inputs.rule_map, pull), out)
    return out


def change_each(
    inputs: Inputs, won: Tensor, rule: Int[Tensor, "S B M"], raw: Tensor
) -> tuple[Tensor, Tensor]:
    """New slots, and the update with its bias."""
    return _change("change_each", inputs, won, rule, raw)


def choose_each_gradient(
    inputs: Inputs, grads: Grads, chosen: tuple[Tensor, ...], to_x: Tensor, to_rule: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """To the slots (but for what goes through `pull`), to bids and scores, and to `pull`."""
    (s, b, m, d), new = inputs.slots.shape, inputs.slots.new_empty
    out = new(s, b * m, d), new(s, b * m, inputs.rule_map.shape[1]), new(s, b * m, d)
    given = inputs.slots, inputs.rule_map, *chosen, to_x, to_rule
    _choose_gradient("choose_each_gradient", inputs, grads, given, out)
    return out


# -- the rules -------------------------------------------------------------------------------------


def act(inputs: Inputs, x: Float[Tensor, "S T I"], rule: Int[Tensor, "S T"]) -> tuple[Tensor, ...]:
    """What the chosen rules do, without its bias, and three tensors for `act_gradient`."""
    form = grouped.act if groups(inputs, rule) else masked.act
    return form(inputs, x, rule)


def act_gradient(
    inputs: Inputs,
    g: Float[Tensor, "S T D"],
    x: Float[Tensor, "S T I"],
    rule: Int[Tensor, "S T"],
    *kept: Tensor,
) -> tuple[Tensor, ...]:
    """To x, to the choice of every rule (S, T, N), and to the four weights."""
    form = grouped.act_gradient if groups(inputs, rule) else masked.act_gradient
    return form(inputs, g, x, rule, *kept)
