"""RPIN: the sizes of the original, a roll-out written out, any interaction and number of shapes."""

import pytest
import torch
from torch.nn import functional as F

from nps.interactions.cin import CIN
from nps.models.rpin import RPIN, Latent, cells, make_interaction
from nps.rules import ParallelNPS, RuleConfig, SequentialNPS

KINDS = {"cin": CIN, "pnps": ParallelNPS, "snps": SequentialNPS, "none": type(None)}
ALL = pytest.mark.parametrize("kind", KINDS)
BIASES = 7_616
"""Numbers that the original's backbone adds, and that its batch norms subtract."""


def make(kind, width=8, select_by="pooled", **options):
    torch.manual_seed(0)
    rules = RuleConfig(2, stages=2, rule_dim=4, hidden_dim=6, kernel_size=3, null_handicap=2.0)
    layer = make_interaction(kind, width, rules, select_by=select_by)
    assert isinstance(layer, KINDS[kind])
    return RPIN(layer, width, select_by=select_by, **options)


def test_it_has_the_parameters_of_the_original():
    model = RPIN(make_interaction("cin", 256, RuleConfig(1)))
    sizes = {
        name: sum(p.numel() for p in getattr(model, name).parameters())
        for name in ("backbone", "to_slots", "interaction", "mask", "posterior", "predict", "box")
    }
    assert sizes == {
        "backbone": 3_005_056 - BIASES,
        "to_slots": 1_770_240,
        "interaction": 3_539_968,
        "mask": 3_413_008,
        "posterior": 2_360_064,
        "predict": 65_792,
        "box": 50_180,
    }
    assert sum(p.numel() for p in model.parameters()) == 14_276_836 - BIASES


@ALL
@pytest.mark.parametrize("select_by", ["pooled", "flattened"])
def test_a_roll_out_written_out(kind, select_by):
    model = make(kind, select_by=select_by).eval()
    slots, latent = torch.randn(2, 3, 8, 7, 7), torch.randn(2, 8)
    with torch.no_grad():
        found = model.unroll(slots, latent, 3, return_trace=True)
        lstm = torch.nn.LSTM(8, 8, batch_first=True)
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        lstm.load_state_dict({f"{n}_l0": getattr(model.latents, n) for n in names})
        told = lstm(torch.zeros(2, 3, 8), (torch.zeros(1, 2, 8), latent[None]))[0]
        for t in range(3):
            at_cells = told[:, t, None, :, None, None].expand(2, 3, 8, 7, 7)
            x = F.relu(model.join(torch.cat([slots, at_cells], 2).flatten(0, 1)))
            x = (x / x.norm(dim=1, keepdim=True).clamp(min=1e-12)).view(2, 3, 8, 7, 7)
            if kind == "cin":
                x = model.interaction(x)
            elif kind != "none":
                seen = 8**0.5 * (x.mean((-2, -1)) if select_by == "pooled" else x.flatten(2))
                if kind == "pnps":  # sequential: what is seen changes between stages
                    x = model.interaction(x, selection=lambda s: model._features(s))
                    assert seen.shape[-1] == model.interaction.selection_dim
                else:
                    x = model.interaction(x, selection=model._features)
            slots = F.relu(model.predict(x.flatten(0, 1))).view(2, 3, 8, 7, 7)
            torch.testing.assert_close(found.boxes[:, t], model.box(slots.flatten(2)))
            drawn = model.mask(slots.flatten(2)).view(2, 3, 28, 28)
            torch.testing.assert_close(found.masks[:, t], drawn)
    assert (found.trace is None) == (kind in ("cin", "none"))
    if found.trace is not None:
        assert found.trace.rule.shape == (2, 3, 2, 3)


@ALL
def test_shapes_are_a_set_of_any_number(kind):
    model = make(kind).eval()
    slots, latent = torch.randn(2, 4, 8, 7, 7), torch.randn(2, 8)
    order = torch.tensor([2, 0, 3, 1])
    with torch.no_grad():
        found, other = (model.unroll(x, latent, 2).boxes for x in (slots, slots[:, order]))
    torch.testing.assert_close(found[:, :, order], other)


@ALL
def test_every_parameter_learns_from_pictures(kind):
    model = make(kind)
    images = torch.randint(256, (2, 2, 32, 32, 3), dtype=torch.uint8)
    boxes = torch.tensor([[[0.1, 0.1, 0.5, 0.5], [0.4, 0.3, 0.9, 0.8]]]).expand(2, -1, -1)
    first, last = model.backbone(images.flatten(0, 1)).unflatten(0, (2, 2)).unbind(1)
    latent = model.infer(first, last)
    assert latent.mean.shape == (2, 8)
    drawn = latent.draw(torch.randn(2, 8))
    found = model.unroll(model.encode(first, boxes), drawn, 3)
    loss = found.boxes.square().sum() + found.masks.square().sum() + latent.divergence()
    loss.backward()
    for name, parameter in model.named_parameters():
        if "rules.embedding" not in name and "weight_ih" not in name:  # the LSTM's input is zero
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all()


def test_cells_of_a_box():
    boxes = torch.tensor([[[0.0, 0.1, 0.7, 0.8], [-0.2, 0.3, 0.15, 0.65]]])
    found = cells(boxes)
    assert found.shape == (1, 2, 2, 7, 7)
    for m, (left, top, side) in enumerate([(0.0, 0.1, 0.7), (-0.2, 0.3, 0.35)]):
        for i in range(7):
            for j in range(7):
                place = torch.tensor([left + (j + 0.5) * side / 7, top + (i + 0.5) * side / 7])
                torch.testing.assert_close(found[0, m, :, i, j], place)


@pytest.mark.parametrize("coordinates", [False, True])
def test_slots_that_look_alike_differ_by_their_coordinates(coordinates):
    model = make("none", coordinates=coordinates)
    features = torch.ones(1, 8, 20, 20)
    boxes = torch.tensor([[[0.1, 0.1, 0.3, 0.3], [0.6, 0.5, 0.8, 0.7]]])
    first, second = model.encode(features, boxes)[0]
    assert torch.allclose(first, second, atol=1e-5) != coordinates


def test_the_divergence_is_that_of_torch():
    latent = Latent(torch.randn(5, 8), torch.randn(5, 8))
    ours = torch.distributions.Normal(latent.mean, (0.5 * latent.log_variance).exp())
    standard = torch.distributions.Normal(torch.zeros(5, 8), torch.ones(5, 8))
    expected = torch.distributions.kl_divergence(ours, standard).mean()
    torch.testing.assert_close(latent.divergence(), expected)
    drawn = latent.draw(torch.zeros(5, 8))
    assert torch.equal(drawn, latent.mean)


# -- the interaction network -------------------------------------------------------------------


def test_cin_is_that_of_a_loop_over_pairs():
    torch.manual_seed(0)
    layer, slots = CIN(4), torch.randn(2, 3, 4, 5, 5)
    found = layer(slots)
    alone, primary, context = layer.weight.chunk(3)
    relation = torch.cat([primary, context], 1)
    alone_bias, relation_bias = layer.bias.chunk(2)
    for b in range(2):
        for i in range(3):
            own = slots[b, i][None]
            total = F.relu(F.conv2d(own, alone, alone_bias, padding=1))
            for j in range(3):
                if j != i:
                    pair = torch.cat([own, slots[b, j][None]], 1)
                    total = total + F.relu(F.conv2d(pair, relation, relation_bias, padding=1))
            influence = F.relu(layer.all(total))
            expected = F.relu(layer.out(torch.cat([influence, own], 1)))[0]
            torch.testing.assert_close(found[b, i], expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(layer(slots[0]), found[0])


def test_cin_leaves_masked_slots_out():
    torch.manual_seed(0)
    layer, slots = CIN(4), torch.randn(2, 3, 4, 5, 5)
    mask = torch.tensor([[True, True, False]]).expand(2, -1)
    found = layer(slots, slot_mask=mask)
    assert torch.equal(found[:, 2], slots[:, 2])
    torch.testing.assert_close(found[:, :2], layer(slots[:, :2]))
    with pytest.raises(ValueError, match=r"^slots: got"):
        layer(torch.randn(2, 3, 5, 5, 5))
