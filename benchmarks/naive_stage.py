"""What a stage costs on a CPU if it is written down as the paper has it, as naively as possible.

    python benchmarks/naive_stage.py runs/naive-stage-cpu.jsonl

One sequential stage, forward and backward, in plain torch operations with autograd's own gradients,
beside `SequentialNPS` and C-SWM's GNN of width 512: one process, two threads, in turn. One JSON
line a size. A yardstick for goals that were set with such a prototype (docs/notes/performance.md).
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from nps.allocator import keep_freed_memory
from nps.interactions import GNN
from nps.rules import SequentialNPS
from nps.training import provenance

SIZES = ((5, 256), (20, 64))
"""Slots and batch."""
SLOT, RULES, KEY, HIDDEN = 64, 10, 32, 128
ROUNDS, SECONDS = 9, 0.7


class NaiveStage(nn.Module):
    """Algorithm 1, one stage, all rules computed and weighted."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.randn(RULES, SLOT))
        self.query, self.key, self.context_query, self.context_key = (
            nn.Linear(SLOT, KEY, bias=False) for _ in range(4)
        )
        self.weight_in = nn.Parameter(torch.randn(RULES, 2 * SLOT, HIDDEN) * 0.1)
        self.bias_in = nn.Parameter(torch.zeros(RULES, 1, HIDDEN))
        self.weight_out = nn.Parameter(torch.randn(RULES, HIDDEN, SLOT) * 0.1)
        self.bias_out = nn.Parameter(torch.zeros(RULES, 1, SLOT))

    def forward(self, slots: Tensor) -> Tensor:
        batch, m, _ = slots.shape
        scores = self.query(slots) @ self.key(self.embedding).T
        pair = hard(scores.flatten(1)).view(batch, m, RULES)
        primary, rule = pair.sum(2), pair.sum(1)
        own = (primary.unsqueeze(1) @ slots).squeeze(1)
        matches = (self.context_key(slots) @ self.context_query(own).unsqueeze(-1)).squeeze(-1)
        other = (hard(matches).unsqueeze(1) @ slots).squeeze(1)
        seen = torch.cat([own, other], -1).expand(RULES, batch, -1)
        hidden = torch.baddbmm(self.bias_in, seen, self.weight_in).relu()
        update = torch.einsum(
            "nbd,bn->bd", torch.baddbmm(self.bias_out, hidden, self.weight_out), rule
        )
        return slots + primary.unsqueeze(-1) * update.unsqueeze(1)


def hard(scores: Tensor) -> Tensor:
    """Straight-through Gumbel-softmax."""
    noise = -torch.log(-torch.log(torch.rand_like(scores) + 1e-20) + 1e-20)
    soft = (scores + noise).softmax(-1)
    one = torch.zeros_like(soft).scatter_(-1, soft.argmax(-1, keepdim=True), 1.0)
    return one - soft.detach() + soft


def step_of(model: nn.Module, slots: Tensor) -> Callable[[], None]:
    def step() -> None:
        model.zero_grad()
        model(slots).sum().backward()

    return step


def milliseconds(step: Callable[[], None], calls: int) -> float:
    step()  # what the one before has left in the caches is not its own
    began = time.perf_counter()
    for _ in range(calls):
        step()
    return (time.perf_counter() - began) / calls * 1e3


def measure(m: int, batch: int) -> dict[str, object]:
    torch.manual_seed(0)
    slots = torch.randn(batch, m, SLOT)
    models = {
        "naive": NaiveStage(),
        "nps": SequentialNPS(SLOT, RULES, key_dim=KEY, hidden_dim=HIDDEN),
        "gnn": GNN(SLOT, hidden_dim=512, lean=False),
    }
    steps = {name: step_of(model, slots) for name, model in models.items()}
    calls = {
        name: max(1, round(SECONDS * 1e3 / milliseconds(step, 3))) for name, step in steps.items()
    }
    rounds = [
        {name: milliseconds(step, calls[name]) for name, step in steps.items()}
        for _ in range(ROUNDS)
    ]
    found = {name: statistics.median(times[name] for times in rounds) for name in steps}
    return {
        "slots": m,
        "batch": batch,
        **{f"{name}_ms": round(value, 3) for name, value in found.items()},
        **{f"gnn_over_{name}": round(found["gnn"] / found[name], 1) for name in ("naive", "nps")},
        "nps_range_ms": [round(f(t["nps"] for t in rounds), 3) for f in (min, max)],
        "naive_range_ms": [round(f(t["naive"] for t in rounds), 3) for f in (min, max)],
    }


def main() -> None:
    torch.set_num_threads(2)
    keep_freed_memory()
    path = Path(sys.argv[1])
    lines = [provenance.describe(torch.device("cpu"))]
    lines += [measure(*size) for size in SIZES]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for line in lines[-len(SIZES) :]:
        print(line)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main()
