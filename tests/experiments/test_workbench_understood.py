"""Every workbench can be explained, described, changed and filmed: what is said of it is finite,
and the smallest change that is told really flips what the model does there."""

import json

import numpy as np
import pytest
import torch

from nps.inspect.counterfactual import what_if
from nps.inspect.decisions import NULL
from nps.inspect.descriptions import describe_all
from nps.inspect.explanations import explain
from nps.inspect.recording import recorded
from nps.rules import ParallelNPS
from tests.experiments import (
    test_workbench_arithmetic,
    test_workbench_balls,
    test_workbench_blocks,
    test_workbench_mnist,
    test_workbench_stacks,
)
from tests.experiments.test_stacks import data  # noqa: F401, a fixture

MADE = {
    "arithmetic": test_workbench_arithmetic.bench_of,
    "mnist": lambda: test_workbench_mnist.bench_of(image_selects=False, self_context=False),
    "blocks": lambda: test_workbench_blocks.bench_of(),
    "blocks, sequential": lambda: test_workbench_blocks.bench_of(transition="snps"),
    "balls": lambda: test_workbench_balls.bench_of(**test_workbench_balls.MODELS["snps"]),
    "balls, gated": lambda: test_workbench_balls.bench_of(
        **test_workbench_balls.MODELS["snps"], interaction="pnps", gate=True
    ),
    "stacks": lambda: test_workbench_stacks.bench_of("pnps"),
    "stacks, sequential": lambda: test_workbench_stacks.bench_of("snps"),
}


@pytest.fixture(scope="module", params=MADE)
def bench(request, data):  # noqa: F811
    return MADE[request.param]()


def decided_again(bench, record, step, stage, slot, change):
    """What the layer itself decides there after a change of what one slot's choice depends on."""
    layer, call = bench.layer, record.calls[step]
    slots, selection = torch.tensor(record.before[step, stage]), call.selection
    row = torch.tensor(change, dtype=slots.dtype)
    if isinstance(selection, torch.Tensor):
        selection = selection.clone()
        selection[0, slot] += row
    else:
        slots[slot] += row
    if layer.rules.event_dims == 3:
        slots = slots.unflatten(-1, (layer.rules.slot_dim, 7, 7))
    options = {} if call.slot_mask is None else {"slot_mask": call.slot_mask[None]}
    with torch.no_grad(), recorded(layer) as recorder:
        layer(slots[None], selection=selection, **options)
    return recorder.record().rule[0, 0]


def test_every_firing_is_explained(bench):
    play = bench.play(0)
    record, flips = play.record, 0
    steps, stages, slots, _ = record.sizes
    for step in range(0, steps, max(1, steps // 3)):
        for stage in range(stages):
            for slot in range(slots):
                found = explain(bench, play, step, slot, stage)
                assert found.rule == record.rule[step, stage, slot]
                assert not found.forced
                json.dumps(found.to_json(lambda picture: str(picture.shape)), allow_nan=False)
                assert set(found.primary) == set(bench.feature_names)
                if found.flip is None:
                    continue
                assert set(found.flip.features) <= set(bench.feature_names)
                asked = slot
                if hasattr(bench.layer, "bind_operand"):
                    asked = int(record.context[step, stage].max())
                change = 1.001 * found.flip.change
                new = decided_again(bench, record, step, stage, asked, change)
                if isinstance(bench.layer, ParallelNPS):
                    assert new[slot] == found.flip.rule != found.rule
                else:
                    assert not np.array_equal(new, record.rule[step, stage])
                    assert new.max() == found.flip.rule or found.flip.rule == NULL
                flips += 1
    assert flips or record.sizes[3] == 1


def test_every_rule_is_described(bench):
    found = describe_all(bench, 3)
    assert [each.name for each in found] == list(bench.rule_names)
    json.dumps([each.to_json() for each in found], allow_nan=False)
    assert sum(each.share for each in found) == pytest.approx(1.0)
    for each in found:
        assert (each.does is None) == (each.uses == 0)
        for shares in each.by.values():
            assert sum(shares.values()) == pytest.approx(1.0)


def test_what_if_a_rule_were_off(bench):
    used = int(bench.play(0).record.rule.max())
    found = what_if(bench, disable=used)
    assert used not in found.after.record.rule
    assert found.changed_firings
    assert "off" in repr(found)
    assert found._repr_html_().count("<svg") == 2


def test_it_is_filmed(bench):
    pytest.importorskip("PIL")
    from nps.inspect.films import animate

    assert animate(bench.play(0), rule_names=bench.rule_names).data[:4] == b"GIF8"
