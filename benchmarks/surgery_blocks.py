"""Rule surgery on blocks: switch the push rule off, and give it to rules that never saw a push.

    python benchmarks/surgery_blocks.py results/surgery/blocks.jsonl blocks-best
    nps train blocks-best --mode shapes --epochs 20 --out runs/free/seed-0
    python benchmarks/surgery_blocks.py results/surgery/blocks.jsonl runs/free/seed-0 0 1 2
    python benchmarks/surgery_blocks.py results/surgery/blocks.jsonl runs/free/seed-0 0 1 2 --gnn

A model by itself is tested without its push rule. With seeds, its encoder is kept, and all else is
trained in its slots, once for each seed. Trained where blocks only block one another, the encoder
has seen no push. The *donor* learns a world with pushes, and is tested without its push rule too;
the *receiver* and a GNN learn the world without pushes. Then the receiver gets the donor's push
rule and relearns its selection from a few transitions, half of them pushes. Beside it the same
transitions for a new rule, for a rule that begins as one of the receiver's own, for fine-tuning
all without another rule, and for the GNN. All learn for as many steps, with batches of one size and
at one rate. The GNN's nodes and edges are given everything: whose action it is, and which slot is
which; it also learns from every push, to show that it can.

The numbers are of all actions from the first states of 1,000 test episodes. Rules learn from few
transitions by the free energy: straight through, the selection of a copied rule was not relearned
(2 % of pushes after 300, one seed). Fine-tuning and a new rule learn both ways: fine-tuning is
better straight through if there are many pushes (validation, one seed).
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import torch
from frozen_blocks import FrozenBlocks, Steps, fit
from torch import Tensor

from nps.interactions import GNN
from nps.models.transitions import RuleTransition, Transition
from nps.training import provenance
from nps.worlds.blocks import Outcome

STEPS, FEW_STEPS, RATE, FEW_RATE = 3_000, 500, 2e-3, 1e-3
GNN_WIDTH = 128
TEMPERATURE = 0.01
"""Of the free energy; a free move is a squared distance of 0.3."""
FEW = (10, 30, 100, 1_000)
"""Pushes in the few transitions; as many others come with them."""
ROLES = ("moves", "stopped", "pushes", "pushed", "rest")
"""Of a slot: moves freely, is to move but does not, pushes, is pushed, or is none of these."""

Loss = Callable[[Transition, Steps], Tensor]


class WideGNN(Transition):
    """C-SWM's GNN in which every node is given all actions and every slot its index."""

    def __init__(self, slots: int, slot_dim: int, action_dim: int) -> None:
        super().__init__()
        self.slot_dim = slot_dim
        actions = (slots + 1) * action_dim
        self.gnn = GNN(slot_dim + slots, action_dim=actions, hidden_dim=GNN_WIDTH)

    def forward(self, slots: Tensor, action: Tensor, noise: Tensor | None = None) -> Tensor:
        *batch, count, _ = slots.shape
        index = torch.eye(count).expand(*batch, count, count)
        everyone = action.flatten(-2).unsqueeze(-2).expand(*batch, count, -1)
        new: Tensor = self.gnn(torch.cat([slots, index], -1), torch.cat([action, everyone], -1))
        return new[..., : self.slot_dim]


def few(data: Steps, pushes: int, seed: int) -> Steps:
    """Some random pushes and as many other transitions."""
    draw = torch.Generator().manual_seed(seed)
    parts = []
    for which in (data.outcome == Outcome.PUSH, data.outcome != Outcome.PUSH):
        index = which.nonzero().squeeze(1)
        parts.append(index[torch.randperm(len(index), generator=draw)[:pushes]])
    return data.at(torch.cat(parts))


@torch.no_grad()
def fired(blocks: FrozenBlocks, model: RuleTransition, steps: Steps) -> dict[str, list[float]]:
    """How often each rule fires on slots of each role."""
    change = (steps.after - steps.before).square().sum(-1)
    row, actor = torch.arange(len(change)), blocks.slot_of_block.slot[steps.action // 5]
    change[row, actor] = 0.0
    role = torch.full(change.shape, ROLES.index("rest"))
    happens = {Outcome.FREE: "moves", Outcome.NOTHING: "stopped", Outcome.PUSH: "pushes"}
    for outcome, name in happens.items():
        some = steps.outcome == outcome
        role[row[some], actor[some]] = ROLES.index(name)
    push = steps.outcome == Outcome.PUSH
    role[row[push], change.argmax(1)[push]] = ROLES.index("pushed")
    _, trace = model.traced(steps.before, blocks.given(steps.action))
    rule, count = trace.rule[:, 0], len(model.layer.rules)
    return {
        name: [round((rule[role == i] == j).double().mean().item(), 4) for j in range(count)]
        for i, name in enumerate(ROLES)
    }


def first_of(shares: list[float]) -> int:
    return shares.index(max(shares))


def without_rule(blocks: FrozenBlocks, model: RuleTransition, test: Steps) -> dict[str, Any]:
    """A transition as it is, with the rule of pushed blocks switched off, and with this rule firing
    but adding nothing."""
    shares = fired(blocks, model, blocks.train.at(slice(20_000)))
    rule = first_of(shares["pushed"])
    found: dict[str, Any] = {"part": "switch off", "rule": rule, "fires": shares}
    found["all rules"] = blocks.right(model, test)
    with model.layer.rules.disabled(rule):
        found["switched off"] = blocks.right(model, test)
    silent = copy.deepcopy(model)
    with torch.no_grad():
        for name in ("weight_out", "bias_out"):
            silent.layer.rules.tensor(name)[rule] = 0.0
    found["adds nothing"] = blocks.right(silent, test)
    return found


def selection(layer: Any) -> list[Tensor]:
    """The parameters by which rules and contexts are chosen."""
    return [p for name, p in layer.named_parameters() if not _acts(name)]


def _acts(name: str) -> bool:
    return name.startswith(("rules.weight", "rules.bias"))


def ways(
    receiver: RuleTransition, donor: RuleTransition, rule: int, own: int
) -> Iterator[tuple[str, RuleTransition, list[Tensor]]]:
    """Each way to learn from few pushes: its name, a fresh model, and what of it learns."""
    copied = copy.deepcopy(receiver)
    (place,) = copied.layer.rules.add(1)
    copied.layer.rules.copy_from(donor.layer.rules, rule, to=place)
    yield "copied", copied, selection(copied.layer)
    for name in ("new rule", "new rule, straight through", "own rule again"):
        more = copy.deepcopy(receiver)
        (place,) = more.layer.rules.add(1)
        if name == "own rule again":
            more.layer.rules.copy_from(receiver.layer.rules, own, to=place)
        more.layer.rules.freeze(*range(place))
        yield name, more, list(more.parameters())
    for name in ("fine-tuned", "fine-tuned, straight through"):
        tuned = copy.deepcopy(receiver)
        yield name, tuned, list(tuned.parameters())


def measure(
    model: str, seeds: list[int], split: str, gnn: bool, only: str
) -> Iterator[dict[str, Any]]:
    """The lines of a model: its own push rule, or for each seed the ways to learn pushes."""
    blocks = FrozenBlocks(model)
    test = blocks.every_action(split)
    one = {"model": model, "split": split}
    if not seeds:
        trained = cast("RuleTransition", blocks.model.transition)
        yield one | {"seed": blocks.run.seed} | without_rule(blocks, trained, test)
        return
    calm = FrozenBlocks(model, "shapes")
    for seed in seeds:
        lines = (
            gnn_given_pushes(blocks, calm, seed, split)
            if gnn
            else rules_given_pushes(blocks, calm, seed, split, only)
        )
        yield from (one | {"seed": seed} | line for line in lines)


def rules_given_pushes(
    blocks: FrozenBlocks, calm: FrozenBlocks, seed: int, split: str, only: str
) -> Iterator[dict[str, Any]]:
    test = blocks.every_action(split)
    donor, receiver = (cast("RuleTransition", blocks.make(each + seed)) for each in (100, 200))
    fit(donor, blocks.train, blocks.loss, STEPS, seed=seed, without_context=0.05)
    found = without_rule(blocks, donor, test)
    yield found
    fit(receiver, calm.train, calm.loss, STEPS, seed=seed, without_context=0.05)
    yield before(blocks, calm, receiver, split) | {"way": "rules"}
    own = first_of(fired(calm, receiver, calm.train.at(slice(20_000)))["moves"])

    def energy(model: Transition, data: Steps) -> Tensor:
        return blocks.energy(model, data, TEMPERATURE)

    for pushes in FEW:
        examples = few(blocks.train, pushes, seed)
        for name, model, trained in ways(receiver, donor, found["rule"], own):
            if only not in name:
                continue
            loss = blocks.loss if "straight through" in name else energy
            fit_few(model, examples, loss, seed, trained)
            yield {"part": "few", "way": name, "pushes": pushes, **blocks.right(model, test)}


def gnn_given_pushes(
    blocks: FrozenBlocks, calm: FrozenBlocks, seed: int, split: str
) -> Iterator[dict[str, Any]]:
    test = blocks.every_action(split)
    torch.manual_seed(300 + seed)
    gnn = WideGNN(*blocks.train.before.shape[1:], blocks.model.actions.dim)
    fit(gnn, calm.train, calm.loss, STEPS, seed=seed)
    yield before(blocks, calm, gnn, split) | {"way": "gnn"}
    for pushes in FEW:
        tuned = copy.deepcopy(gnn)
        examples = few(blocks.train, pushes, seed)
        fit_few(tuned, examples, blocks.loss, seed, list(tuned.parameters()))
        yield {"part": "few", "way": "gnn", "pushes": pushes, **blocks.right(tuned, test)}
    tuned = copy.deepcopy(gnn)
    fit(tuned, blocks.train, blocks.loss, STEPS, seed=seed)
    count = int((blocks.train.outcome == Outcome.PUSH).sum())
    yield {"part": "all", "way": "gnn", "pushes": count, **blocks.right(tuned, test)}


def before(
    blocks: FrozenBlocks, calm: FrozenBlocks, model: Transition, split: str
) -> dict[str, Any]:
    """What a model that never saw a push predicts where blocks push and where they do not."""
    return {
        "part": "before",
        "without pushes": calm.right(model, calm.every_action(split)),
        "with": blocks.right(model, blocks.every_action(split)),
    }


def fit_few(
    model: Transition, examples: Steps, loss: Loss, seed: int, trained: list[Tensor]
) -> None:
    size = {"learning_rate": FEW_RATE, "batch_size": 64}
    fit(model, examples, loss, FEW_STEPS, seed=seed, parameters=trained, **size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("path", type=Path, help="where lines are appended")
    parser.add_argument("model", help="a run, or a model that ships")
    parser.add_argument("seeds", type=int, nargs="*", help="of what is trained in its slots")
    parser.add_argument("--gnn", action="store_true", help="the lines of the GNN")
    parser.add_argument("--only", default="", help="what the names of the ways contain")
    parser.add_argument("--split", default="test", choices=("validation", "test"))
    asked = parser.parse_args()
    given = provenance.describe(torch.device("cpu"), " ".join(["python", *sys.argv]))
    asked.path.parent.mkdir(parents=True, exist_ok=True)
    with asked.path.open("a") as file:
        for line in measure(asked.model, asked.seeds, asked.split, asked.gnn, asked.only):
            print(line, flush=True)
            file.write(json.dumps(line | given) + "\n")
            file.flush()


if __name__ == "__main__":
    main()
