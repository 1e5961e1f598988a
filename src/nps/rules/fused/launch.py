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


@cache
def installed() -> bool:
    return find_spec("triton") is not None


def serves(inputs: Inputs) -> bool:
    if not inputs.slots.is_cuda or not installed():
        return False
    return fits(inputs)


def fits(inputs: Inputs) -> bool:
    m, d = (_power(size) for size in inputs.slots.shape[2:])
    n, h = _power(inputs.rule_map.shape[1]), _power(inputs.weight_in.shape[-1])
    single = inputs.slots.dtype == inputs.uniform.dtype == torch.float32
    return single and max(m * d, m * n, m * m, h, d * CHUNK) <= LARGEST_TILE


CHUNK = 16
"""Lines of a matrix that a program holds at a time."""


def _power(size: int) -> int:
    return 1 << (size - 1).bit_length()


def _warps(tile: int) -> int:
    return max(1, min(8, tile // 512))


def _kernels() -> Any:
    return import_module("nps.rules.fused.kernels")


def _sizes(inputs: Inputs) -> dict[str, int]:
    (_, b, m, d), n = inputs.slots.shape, inputs.weight_in.shape[1]
    powers = {"MP": _power(m), "NP": _power(n), "DP": _power(d)}
    chunk = min(CHUNK, _power(d))
    warps = _warps(max(powers["MP"] * powers["DP"], chunk * powers["DP"]))
    return {"B": b, "M": m, "N": n, "D": d, **powers, "CHUNK": chunk, "num_warps": warps}


def _noise(inputs: Inputs) -> tuple[Tensor, int]:
    """The uniform numbers, and how far a row is from the next."""
    uniform = inputs.uniform
    s, b, _ = uniform.shape
    if uniform.stride(2) != 1 or (s > 1 and uniform.stride(0) != b * uniform.stride(1)):
        uniform = uniform.contiguous()
    return uniform, uniform.stride(1)


# -- Algorithm 1 -----------------------------------------------------------------------------------


def choose_one(inputs: Inputs) -> tuple[Tensor, ...]:
    slots, (s, b, m, d) = inputs.slots.contiguous(), inputs.slots.shape
    n, new = inputs.rule_map.shape[1], slots.new_empty
    scores, noisy, matches = new(s, b, m * n), new(s, b, m * n), new(s, b, m)
    noisy_matches, pull, x = new(s, b, m), new(s, b, d), new(s, b, 2 * d)
    primary, rule, context = (new(s, b, dtype=torch.int64) for _ in range(3))
    uniform, stride = _noise(inputs)
    allowed = slots if inputs.allowed is None else inputs.allowed.contiguous()
    with torch.cuda.device_of(slots):
        _kernels().choose_one[(s * b,)](
            slots, inputs.rule_map.contiguous(), inputs.bind_map.contiguous(), uniform, allowed,
            inputs.dropout, scores, noisy, matches, noisy_matches, primary, rule, context, pull, x,
            uniform_stride=stride,
            SELF_CONTEXT=inputs.self_context,
            ALL=inputs.allowed is None,
            DROPS=inputs.drops(),
            DROP_TENSOR=isinstance(inputs.dropout, Tensor),
            **_sizes(inputs),
        )  # fmt: skip
    return scores, matches, primary, rule, context, noisy, noisy_matches, pull, x


def change_one(
    inputs: Inputs, primary: Int[Tensor, "S B"], rule: Int[Tensor, "S B"], raw: Tensor
) -> tuple[Tensor, Tensor]:
    """New slots, and the update with its bias."""
    slots, (s, b, m, d) = inputs.slots.contiguous(), inputs.slots.shape
    new, update = torch.empty_like(slots), torch.empty_like(raw)
    sizes = _sizes(inputs)
    with torch.cuda.device_of(slots):
        _kernels().change_one[(s * b,)](
            slots, primary, rule, raw, inputs.bias_out.contiguous(), new, update, b,
            M=m, N=sizes["N"], D=d, MP=sizes["MP"], DP=sizes["DP"], num_warps=sizes["num_warps"],
        )  # fmt: skip
    return new, update


def choose_one_gradient(
    inputs: Inputs, grads: Grads, chosen: tuple[Tensor, ...], to_x: Tensor, to_rule: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """To the slots, to the scores and to what the slots were compared with."""
    _, _, noisy, _, pull, _ = chosen
    slots, (s, b, _, _) = inputs.slots.contiguous(), inputs.slots.shape
    g, to_rule_scores, to_context_scores = (x if x is None else x.contiguous() for x in grads)
    to_slots, to_scores, to_pull = (torch.empty_like(x) for x in (slots, noisy, pull))
    uniform, stride = _noise(inputs)
    with torch.cuda.device_of(slots):
        _kernels().choose_one_gradient[(s * b,)](
            slots, inputs.rule_map.contiguous(), inputs.bind_map.contiguous(), uniform,
            inputs.temperature, inputs.dropout, *chosen, g,
            g if to_rule_scores is None else to_rule_scores,
            g if to_context_scores is None else to_context_scores,
            to_x, to_rule, to_slots, to_scores, to_pull,
            uniform_stride=stride,
            TEMPERATURE_TENSOR=isinstance(inputs.temperature, Tensor),
            DROPS=inputs.drops(),
            DROP_TENSOR=isinstance(inputs.dropout, Tensor),
            RULE_SCORES=to_rule_scores is not None,
            CONTEXT_SCORES=to_context_scores is not None,
            **_sizes(inputs),
        )  # fmt: skip
    return to_slots, to_scores, to_pull


# -- the rules -------------------------------------------------------------------------------------


def act(
    inputs: Inputs, x: Float[Tensor, "S T I"], rule: Int[Tensor, "S T"]
) -> tuple[Float[Tensor, "S T D"], Tensor, Tensor, Tensor]:
    """What the chosen rules do, without its bias, and three tensors for `act_gradient`."""
    s, n, i, h = inputs.weight_in.shape
    side_by_side = inputs.weight_in.transpose(1, 2).reshape(s, i, n * h)
    before = add_product(inputs.bias_in.reshape(s, 1, n * h), x, side_by_side)
    mine, rows = torch.empty_like(before), x.shape[0] * x.shape[1]
    block = _block(rows)
    with torch.cuda.device_of(x):
        _kernels().hide[(-(-rows // block), n)](
            before, rule, mine, rows, N=n, H=h, HP=_power(h), ROWS=block
        )
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
    with torch.cuda.device_of(x):
        _kernels().expose[(s * blocks, n)](
            passed, before, rule, g, inputs.bias_out.contiguous(), to_choice, sums, t, blocks,
            N=n, H=h, D=d, HP=_power(h), DP=_power(d), ROWS=block,
        )  # fmt: skip
    to_bias_in, to_bias_out = sums.sum(1).split([h, d], -1)
    to_weight_in = product(x.mT, passed).view(s, i, n, h).transpose(1, 2)
    to_weight_out = product(mine.mT, g).view(s, n, h, d)
    to_x = product(passed, side_by_side.mT)
    return to_x, to_choice, to_weight_in, to_bias_in, to_weight_out, to_bias_out


def _block(rows: int) -> int:
    """Rows of a program: few enough to keep all processors busy."""
    return 16 if rows <= 4096 else 32
