"""The fused stage on a GPU: which sizes the Triton kernels serve, and their calls.

The functions stand in for those of the same purpose in `sequential.py`, `parallel.py` and
`action.py`: same arguments, same results.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nps.rules.fused.inputs import Grads, Inputs, add_product, product

if TYPE_CHECKING:
    from jaxtyping import Float, Int

LARGEST_TILE = 8192
"""Numbers that a program can hold at a time."""
CHUNK = 16
"""Lines of a matrix that a program holds at a time."""


@cache
def installed() -> bool:
    return find_spec("triton") is not None


def serves(inputs: Inputs) -> bool:
    return inputs.slots.is_cuda and installed() and fits(inputs)


def fits(inputs: Inputs) -> bool:
    (m, d), (n, h) = inputs.slots.shape[2:], inputs.bias_in.shape[1:]
    tiles = [(m, d), (m, n), (m, m), (CHUNK, h), (CHUNK, d)]
    single = inputs.slots.dtype == inputs.uniform.dtype == torch.float32
    return single and all(_power(a) * _power(b) <= LARGEST_TILE for a, b in tiles)


def _power(size: int) -> int:
    """Triton's tiles have powers of two as their sizes."""
    return 1 << (size - 1).bit_length()


KERNELS = {"one": "kernels_sequential", "each": "kernels_parallel"}


def _launch(name: str, grid: tuple[int, ...], *arguments: Any, **settings: Any) -> None:
    file = next((file for part, file in KERNELS.items() if part in name.split("_")), "kernels")
    kernel = getattr(import_module(f"nps.rules.fused.{file}"), name)
    with torch.cuda.device_of(arguments[0]):
        kernel[grid](*arguments, **settings)


def _tile(inputs: Inputs) -> dict[str, int]:
    """The sizes of a program that holds the slots of one element of the batch."""
    (_, _, m, d), n = inputs.slots.shape, inputs.weight_in.shape[1]
    powers = {"MP": _power(m), "DP": _power(d)}
    warps = max(1, min(8, max(CHUNK, powers["MP"]) * powers["DP"] // 512))
    return {"M": m, "N": n, "D": d, **powers, "num_warps": warps}


def _choice(inputs: Inputs) -> dict[str, Any]:
    """The sizes of a program that chooses, and what it is told about its settings."""
    return {
        **_tile(inputs),
        "NP": _power(inputs.weight_in.shape[1]),
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
    _launch(name, grid, *inside, *out, **settings)


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
    _launch(name, grid, *inside, *chosen, *outer, *given[-2:], *out, **settings)


def _change(
    name: str, inputs: Inputs, primary: Tensor, rule: Tensor, raw: Tensor
) -> tuple[Tensor, Tensor]:
    slots, (s, b, _, _) = inputs.slots, inputs.slots.shape
    new, update = torch.empty_like(slots), torch.empty_like(raw)
    given = slots, primary, rule, raw, inputs.bias_out.contiguous()
    _launch(name, (s * b,), *given, new, update, B=b, **_tile(inputs))
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


def act(
    inputs: Inputs, x: Float[Tensor, "S T I"], rule: Int[Tensor, "S T"]
) -> tuple[Float[Tensor, "S T D"], Tensor, Tensor, Tensor]:
    """What the chosen rules do, without its bias, and three tensors for `act_gradient`."""
    s, n, i, h = inputs.weight_in.shape
    side_by_side = inputs.weight_in.transpose(1, 2).reshape(s, i, n * h)
    before = add_product(inputs.bias_in.reshape(s, 1, n * h), x, side_by_side)
    mine, rows = torch.empty_like(before), rule.numel()
    block = _block(rows)
    grid, sizes = (-(-rows // block), n), {"N": n, "H": h, "HP": _power(h), "ROWS": block}
    _launch("hide", grid, before, rule, mine, rows, **sizes)
    return product(mine, inputs.weight_out.flatten(1, 2)), before, mine, side_by_side


def act_gradient(
    inputs: Inputs,
    g: Float[Tensor, "S T D"],
    x: Float[Tensor, "S T I"],
    rule: Int[Tensor, "S T"],
    before: Tensor,
    mine: Tensor,
    side_by_side: Tensor,
) -> tuple[Tensor, ...]:
    """To x, to the choice of every rule (S, T, N), and to the four weights."""
    (s, n, i, h), (_, t, d) = inputs.weight_in.shape, g.shape
    passed = product(g, inputs.weight_out.flatten(1, 2).mT)
    block = _block(s * t)
    blocks = -(-t // block)
    to_choice, sums = g.new_empty(s, t, n), g.new_empty(s, blocks, n, h + d)
    given = passed, before, rule, g, inputs.bias_out.contiguous(), to_choice, sums, t, blocks
    sizes = {"N": n, "H": h, "D": d, "HP": _power(h), "DP": _power(d), "ROWS": block}
    _launch("expose", (s * blocks, n), *given, **sizes)
    to_bias_in, to_bias_out = sums.sum(1).split([h, d], -1)
    to_weight_in = product(x.mT, passed).view(s, i, n, h).transpose(1, 2)
    to_weight_out = product(mine.mT, g).view(s, n, h, d)
    to_x = product(passed, side_by_side.mT)
    return to_x, to_choice, to_weight_in, to_bias_in, to_weight_out, to_bias_out


def _block(rows: int) -> int:
    """Rows of a program: few enough to keep all processors busy."""
    return 16 if rows <= 4096 else 32
