"""The recipes: their loss against plain loops, and their settings against what was measured."""

import math

import pytest
import torch

import nps
from nps import ParallelNPS, SequentialNPS
from nps.experiments import EXPERIMENTS
from nps.metrics.segregation import segregation, usage_table
from nps.recipes import GIVEN, LEARNED, given_loss
from nps.worlds.arithmetic import demonstrate


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kind", [SequentialNPS, ParallelNPS])
def test_the_loss_of_given_targets_is_that_of_a_plain_loop(kind, masked):
    torch.manual_seed(0)
    layer = GIVEN.layer(3, 2, kind=kind)
    slots, target = torch.randn(2, 6, 4, 3)
    mask = torch.rand(6, 4) < 0.7 if masked else None
    if masked:
        mask[:, 0] = True
    loss = given_loss(layer, slots, target, slot_mask=mask, tau=0.5)
    log_prior, updated = (x.detach() for x in layer.every_update(slots, slot_mask=mask))
    sets, regrets, rows = [], [], []
    for b in range(6):
        present = [m for m in range(4) if mask is None or mask[b, m]]
        kept = {m: (slots[b, m] - target[b, m]).square().sum().item() for m in present}
        options = {}
        for m in present:
            for r in range(log_prior.shape[2]):
                for c in range(4):
                    if log_prior[b, m, r, c] < -1e20:
                        continue
                    away = (updated[b, m, r, c] - target[b, m]).square().sum().item()
                    if kind is SequentialNPS:
                        away += sum(kept[other] for other in present if other != m)
                    options.setdefault(m, []).append((log_prior[b, m, r, c].exp().item(), away))
        together = list(options.values())
        if kind is SequentialNPS:
            together = [[pair for some in together for pair in some]]
        rows.append(together)
        for some in together:
            sets.append(some)
            regrets.append(sum(p * x for p, x in some) - min(x for _, x in some))
    t = 0.5 * sum(regrets) / len(regrets)
    assert t > 1e-3
    total = sum(
        -t * math.log(sum(p * math.exp(-x / t) for p, x in some)) for row in rows for some in row
    )
    assert loss.item() == pytest.approx(total / 6, rel=1e-4)
    loss.backward()


def test_settings_are_those_that_were_measured():
    """Of the presets from which the recipes were written down, and of the one that has it."""
    for recipe, experiment, preset in (
        (GIVEN, "arithmetic", "arithmetic-energy"),
        (GIVEN, "arithmetic", "arithmetic-energy-any"),
        (LEARNED, "blocks", "blocks-best"),
        (LEARNED, "world-model", "world-model-recipe"),  # not measured: its settings are the recipe
    ):
        measured = EXPERIMENTS[experiment].presets[preset].config.rule_config
        for name, value in recipe.options.items():
            assert getattr(measured, name) == value, (preset, name)
    assert EXPERIMENTS["mnist"].presets["mnist-energy"].config.energy_temperature == 1.0


@pytest.mark.parametrize("recipe", [GIVEN, LEARNED])
def test_layers_of_a_recipe(recipe):
    for kind in (None, *recipe.kinds):
        layer = recipe.layer(6, 3, kind=kind, rule_dim=5)
        assert isinstance(layer, kind or recipe.kinds[0])
        for name, value in recipe.options.items():
            if name not in layer.unused:
                assert getattr(layer.config, name) == value
        assert layer(torch.randn(2, 4, 6)).shape == (2, 4, 6)
    assert recipe.layer(6, 3, self_context=True).self_context
    text = str(recipe)
    assert text.startswith(f"{recipe.name}: ")
    for part in recipe.parts:
        assert part.what in text
        assert part.reason in text
    assert nps.recipes.GIVEN is GIVEN


def test_given_targets_separate_the_operations_of_arithmetic():
    """A tenth of the preset's training: one rule already has most uses of each operation."""
    torch.manual_seed(0)
    data, held_out = demonstrate(20_000, 1, "other"), demonstrate(1_000, 2, "other")
    layer = GIVEN.layer(2, 4, selection_dim=4)
    adam = torch.optim.Adam(layer.parameters(), 3e-3)
    for _ in range(400):
        some = torch.randint(20_000, (256,))
        before, after = data.before[some], data.after[some]
        loss = given_loss(layer, before, after, selection=torch.cat([before, after], -1))
        adam.zero_grad()
        loss.backward()
        adam.step()
    seen = torch.cat([held_out.before, held_out.after], -1)
    _, trace = layer.eval()(held_out.before, selection=seen, return_trace=True)
    rule = trace.rule[:, 0].amax(-1)
    assert segregation(usage_table(held_out.operation, rule, 4, 4)) > 0.9


def test_bad_input_is_one_line():
    layer, slots = GIVEN.layer(3, 2), torch.randn(2, 4, 3)
    with pytest.raises(ValueError, match=r"^target: got shape \(2, 4\), expected \(2, 4, 3\)$"):
        given_loss(layer, slots, slots[..., 0])
    with pytest.raises(ValueError, match=r"^tau: got 0, expected a number"):
        given_loss(layer, slots, slots, tau=0.0)
    with pytest.raises(
        ValueError, match=r"^layer: got Linear.*, expected SequentialNPS or Parallel"
    ):
        given_loss(torch.nn.Linear(3, 3), slots, slots)
