"""One stage of either algorithm on a GPU, with Triton kernels between the large products.

It does what `sequential.py` and `parallel.py` do on a CPU: kernels choose and copy the slots, the
rules' products follow (`grouped.py` or `joint.py`), and a kernel changes the chosen slots; then
the same backwards. Everything that depends on sizes alone is decided once, in a `Plan`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nps.kernels.rules import grouped
from nps.kernels.rules.grouped import Grouped, Size
from nps.kernels.rules.inputs import Gradients, Grads, Stage, add_product, product
from nps.kernels.rules.joint import Joint
from nps.kernels.rules.launch import (
    LARGEST_TILE,
    Launch,
    Layout,
    Space,
    address,
    installed,
    parts,
    power,
    ready,
)

CHUNK = 16
"""Lines of a matrix that a program holds at a time."""
MOVED = 16
"""Rows that a program moves."""


def supported(slots: Tensor, hidden_dim: int, n: int, selection_dim: int) -> bool:
    """True if the kernels can hold a stage of these sizes."""
    return (
        installed() and slots.dtype == torch.float32 and fits(slots, hidden_dim, n, selection_dim)
    )


def fits(slots: Tensor, h: int, n: int, f: int) -> bool:
    m, d = slots.shape[-2:]
    tiles = [(m, d), (m, f), (m, n), (m, m), (CHUNK, h), (CHUNK, d), (CHUNK, f)]
    return all(power(a) * power(b) <= LARGEST_TILE for a, b in tiles)


class Key(NamedTuple):
    """What a plan depends on."""

    parallel: bool
    device: int
    lead: tuple[int, ...]
    b: int
    m: int
    n: int
    d: int
    f: int
    h: int
    uniform_stride: int
    shared: bool
    masked: bool
    some: bool
    self_context: bool
    drops: bool
    drop_tensor: bool
    temperature_tensor: bool
    tf32: bool


class Plan:
    """The launches of a stage, and where its intermediate results lie in a buffer."""

    def __init__(self, key: Key) -> None:
        self.key = key
        lead, b, m, n, d, f, h = key[2:9]
        s = lead[0] if lead else 1
        t = b * m if key.parallel else b
        size = Size(lead, t, n, 2 * d, h, d)
        self.action = (Grouped if grouped.serves(size) else Joint)(size, key.tf32)
        matches = (*lead, b, m, m) if key.parallel else (*lead, b, 1, m)
        chosen = (*lead, b, m) if key.parallel else (*lead, b)
        noisy = {"noisy": (*lead, b, m, n), "noisy_matches": matches}
        if key.parallel:
            noisy["noisy_bids"] = (*lead, b, m, 2)
        else:
            noisy |= {"primary": chosen, "pull": (*lead, b, f), "own": (*lead, b, f)}
        self.layout = Layout(
            scores=(*lead, b, m, n),
            matches=matches,
            rule=chosen,
            context=chosen,
            target=chosen,
            x=(*lead, t, 2 * d),
            update=(*lead, t, d),
            **noisy,
            **self.action.parts,
        )
        columns = n + 2 if key.parallel else n
        self.back = Layout(
            outer=(*lead, t, d),
            to_scores=(*lead, b * m, columns),
            to_pull=(*lead, b * m if key.parallel else b, f),
            **self.action.back_parts,
        )
        powers = {"MP": power(m), "NP": power(n, least=16), "DP": power(d), "FP": power(f)}
        warps = max(1, min(8, max(CHUNK, powers["MP"]) * max(powers["DP"], powers["FP"]) // 512))
        self.sizes = {"M": m, "D": d, "F": f, **powers}
        self.options = {"num_warps": warps}
        self.grid, self.numbers = (s * b,), (b, n, key.uniform_stride)
        drops = {"DROPS": key.drops, "DROP_TENSOR": key.drop_tensor}
        may = {"SELF_CONTEXT": key.self_context, "MASKED": key.masked, "SOME": key.some}
        self.name = "choose_each" if key.parallel else "choose_one"
        constants = {**self.sizes, **may, **drops}
        self.choose = Launch(self.name, self.grid, self.numbers, constants, **self.options)
        moved = {"D": d, "DP": power(d), "ROWS": MOVED}
        self.change = Launch("change_targets", (parts(s * t, MOVED),), (s * t, t, n), moved)
        self.take = Launch("take_targets", (parts(s * t, MOVED),), (s * t,), moved)
        self.gradients: dict[tuple[bool, bool], Launch] = {}

    def choose_gradient(self, rule_scores: bool, context_scores: bool) -> Launch:
        found = self.gradients.get((rule_scores, context_scores))
        if found is None:
            key = self.key
            constants = {
                **self.sizes,
                "SHARED": key.shared,
                "RESTRICTED": key.masked or key.some,
                "TEMPERATURE_TENSOR": key.temperature_tensor,
                "DROPS": key.drops,
                "DROP_TENSOR": key.drop_tensor,
                "RULE_SCORES": rule_scores,
                "CONTEXT_SCORES": context_scores,
            }
            name = f"{self.name}_gradient"
            found = Launch(name, self.grid, self.numbers, constants, **self.options)
            self.gradients[rule_scores, context_scores] = found
        return found


@lru_cache(maxsize=512)
def plan_of(key: Key) -> Plan:
    return Plan(key)


class OnGPU:
    """The implementation of one algorithm; see `nps.kernels.rules.function.Implementation`."""

    def __init__(self, parallel: bool) -> None:
        self.parallel = parallel

    def plan(self, stage: Stage, uniform: Tensor) -> Plan:
        *lead, b, m, d = stage.slots.shape
        n, h = stage.bias_in.shape[-2:]
        return plan_of(
            Key(
                self.parallel,
                stage.slots.get_device(),
                tuple(lead),
                b,
                m,
                n,
                d,
                stage.features.shape[-1],
                h,
                uniform.stride(-2),
                stage.shared,
                stage.slot_mask is not None,
                stage.rules is not None,
                stage.self_context,
                stage.drops(),
                isinstance(stage.dropout, Tensor),
                isinstance(stage.temperature, Tensor),
                stage.tf32,
            )
        )

    def forward(self, stage: Stage) -> tuple[Any, ...]:
        """New slots, then what `backward` and `trace` need."""
        stage, uniform = _prepared(stage)
        plan, slots = self.plan(stage, uniform), stage.slots
        with _device(slots):
            stream = _stream(slots)
            space, new = Space.empty(plan.layout, slots), torch.empty_like(slots)
            at, part = address, space.__getitem__
            first = at(slots)
            mask = first if stage.slot_mask is None else at(stage.slot_mask)
            rules = first if stage.rules is None else at(stage.rules)
            given = first, at(stage.features), at(stage.rule_map)
            noise = at(uniform), mask, rules, at(stage.dropout)
            found = part("scores"), part("matches")
            chosen = part("rule"), part("context"), part("target")
            noisy = part("noisy"), part("noisy_matches")
            pull = None
            if self.parallel:
                flat = stage.features.view(*slots.shape[:-3], -1, stage.features.shape[-1])
                pull = product(flat, stage.bind_map)
                handicap = float(stage.null_handicap)
                outputs = at(new), *found, *chosen, part("noisy_bids"), *noisy, part("x")
                plan.choose(stream, *given, at(pull), *noise, handicap, *outputs)
            else:
                outputs = at(new), *found, part("primary"), *chosen, *noisy, part("pull")
                matrix = at(stage.bind_map)
                plan.choose(stream, *given, matrix, *noise, *outputs, part("own"), part("x"))
            weights = stage.weight_in, stage.bias_in, stage.weight_out, stage.bias_out
            raw, kept = plan.action.forward(stream, space, weights)
            changed = part("rule"), part("target"), at(new), part("update")
            plan.change(stream, first, at(raw), at(stage.bias_out), *changed)
        return new, space.buffer, pull, *kept

    def backward(
        self, stage: Stage, grads: Grads, buffer: Tensor, pull: Tensor | None, *kept: Tensor
    ) -> Gradients:
        stage, uniform = _prepared(stage)
        plan, slots = self.plan(stage, uniform), stage.slots
        (*lead, b, m, _), f = slots.shape, stage.features.shape[-1]
        g, to_rule_scores, to_context_scores = (None if x is None else ready(x) for x in grads)
        with _device(slots):
            stream = _stream(slots)
            space, back = Space(plan.layout, buffer), Space.empty(plan.back, slots)
            at, part = address, space.__getitem__
            outer = at(g)
            plan.take(stream, outer, part("target"), back["outer"])
            weights = stage.weight_in, stage.bias_in, stage.weight_out, stage.bias_out
            to_x, to_rule, to_weights = plan.action.backward(stream, space, back, weights, kept)
            to_slots = torch.empty_like(slots)
            to_features = None if stage.shared else torch.empty_like(stage.features)
            given = at(slots), at(stage.features), at(stage.rule_map)
            settings = at(uniform), at(stage.temperature), at(stage.dropout)
            on_scores = (outer if x is None else at(x) for x in (to_rule_scores, to_context_scores))
            noisy = part("noisy"), part("noisy_matches")
            into = at(to_slots), at(to_slots if to_features is None else to_features)
            ends = part("update"), outer, *on_scores, at(to_x), at(to_rule), *into
            ends = *ends, back["to_scores"], back["to_pull"]
            launch = plan.choose_gradient(to_rule_scores is not None, to_context_scores is not None)
            if self.parallel:
                chosen = part("context"), part("noisy_bids"), *noisy, at(pull)
                launch(stream, *given, *settings, *chosen, *ends)
            else:
                chosen = part("primary"), part("context"), *noisy, part("pull")
                launch(stream, *given, at(stage.bind_map), *settings, *chosen, *ends)

        flat = stage.features.view(*lead, b * m, f)
        to_pull = back.view("to_pull")
        to_rule_map = product(back.view("to_scores").mT, flat)
        to_bind_map = product((flat if self.parallel else space.view("own")).mT, to_pull)
        if self.parallel:  # what goes through `pull`
            target = to_slots if to_features is None else to_features
            through = add_product(target.view(*lead, b * m, f), to_pull, stage.bind_map.mT)
            if to_features is None:
                to_slots = through.view(slots.shape)
            else:
                to_features = through.view(stage.features.shape)
        return Gradients(to_slots, to_features, to_rule_map, to_bind_map, *to_weights)

    def trace(
        self, stage: Stage, buffer: Tensor, pull: Tensor | None, *kept: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Both scores, then the rule that fired on each slot and its context, -1 for none."""
        stage, uniform = _prepared(stage)
        space = Space(self.plan(stage, uniform).layout, buffer)
        rule, context, target = (space.view(x).long() for x in ("rule", "context", "target"))
        if self.parallel:
            fired = target >= 0
        else:
            slots = torch.arange(stage.slots.shape[-2], device=buffer.device)
            primary = torch.where(target >= 0, space.view("primary").long(), -1)
            fired = primary.unsqueeze(-1) == slots
            rule, context = rule.unsqueeze(-1), context.unsqueeze(-1)
        scores = space.view("scores"), space.view("matches")
        return *scores, torch.where(fired, rule, -1), torch.where(fired, context, -1)


SEQUENTIAL, PARALLEL = OnGPU(parallel=False), OnGPU(parallel=True)


def _prepared(stage: Stage) -> tuple[Stage, Tensor]:
    """Tensors as the kernels expect them, and the noise in rows at equal distances."""
    slots, features, uniform = ready(stage.slots), stage.features, stage.uniform
    mask, rules = stage.slot_mask, stage.rules
    even = uniform.dim() == 2 or uniform.stride(0) == uniform.shape[1] * uniform.stride(1)
    if uniform.dtype != torch.float32 or not even or uniform.stride(-1) != 1:
        uniform = uniform.float().contiguous()
    prepared = stage._replace(
        slots=slots,
        features=slots if features is stage.slots else ready(features),
        rule_map=ready(stage.rule_map),
        bind_map=ready(stage.bind_map),
        weight_in=ready(stage.weight_in),
        bias_in=ready(stage.bias_in),
        weight_out=ready(stage.weight_out),
        bias_out=ready(stage.bias_out),
        slot_mask=None if mask is None else ready(mask),
        rules=None if rules is None else ready(rules),
        temperature=_setting(stage.temperature),
        dropout=_setting(stage.dropout),
    )
    return prepared, uniform


def _setting(value: float | Tensor) -> float | Tensor:
    return ready(value.float()) if isinstance(value, Tensor) else float(value)


def _stream(x: Tensor) -> int:
    return torch._C._cuda_getCurrentRawStream(x.get_device()) if x.is_cuda else 0


class _Nothing:
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


def _device(x: Tensor) -> Any:
    """The tensor's device made current, which it mostly is already."""
    if not x.is_cuda or torch.cuda.current_device() == x.get_device():
        return _Nothing()
    return torch.cuda.device(x.device)
