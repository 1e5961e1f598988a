"""SCOFF and SCOFF++: causal, equivariant, with any interaction, with and without input."""

import pytest
import torch

from nps.interactions import GNN, Attention
from nps.models.scoff import LIMIT, Scoff, make_interaction
from nps.perception.frames import BroadcastDecoder, FrameEncoder
from nps.perception.object_files import SchemaReader, SlotReader
from nps.perception.places import PlacedReader, Read, drift, in_radii, push
from nps.rules import ParallelNPS, RuleConfig, SequentialNPS

KINDS = {
    "attention": Attention,
    "snps": SequentialNPS,
    "pnps": ParallelNPS,
    "gnn": GNN,
    "none": type(None),
}
ALL = pytest.mark.parametrize("kind", KINDS)
READERS = pytest.mark.parametrize("reader", [PlacedReader, SlotReader, SchemaReader])


RADIUS = 0.4


def make(kind, reader=PlacedReader, *, presence=False):
    torch.manual_seed(0)
    # The handicap: of so few slots, the null rule may win all, and rules would learn nothing.
    rules = RuleConfig(3, stages=2, rule_dim=4, null_handicap=2.0)
    layer = make_interaction(kind, 8, rules, hidden_dim=16)
    assert isinstance(layer, KINDS[kind])
    placed = reader is PlacedReader
    encoder = FrameEncoder(16, 6, position=not placed)
    decoder = BroadcastDecoder(8, 16, 6, extent=0.3 if placed else None)
    made = reader(3, 8, 6, **({"side": 4} if placed else {}))
    options = {"radius": RADIUS if placed else None, "presence": presence}
    model = Scoff(encoder, made, layer, decoder, hidden_dim=16, **options).eval()
    torch.nn.init.normal_(model.move[-1].weight, std=0.1)  # it starts at zero
    return model


def frames(t=4):
    return torch.randint(256, (2, t, 16, 16, 3), dtype=torch.uint8)


@ALL
@READERS
def test_a_prediction_knows_only_what_came_before(kind, reader):
    model, shown, noise = make(kind, reader), frames(), torch.randn(2, 3, 8)
    other = shown.clone()
    other[:, 2:] = frames(2)
    first, second = (model(x, noise=noise).images for x in (shown, other))
    assert first.shape == (2, 4, 3, 16, 16)
    assert torch.equal(first[:, :2], second[:, :2])
    assert not torch.equal(first[:, 2:], second[:, 2:])


@READERS
@ALL
def test_without_input_it_reads_what_it_predicts(kind, reader):
    """A roll-out is what the model says about a video of its own predictions."""
    model, shown, noise = make(kind, reader), frames(), torch.randn(2, 3, 8)
    with torch.no_grad():
        rolled, seen = model(shown, steps=7, noise=noise), model(shown, noise=noise)
        torch.testing.assert_close(rolled.images[:, :4], seen.images)
        video = shown
        for t in range(3, 6):
            drawn = (255 * rolled.images[:, t].clamp(0, 1)).round().to(torch.uint8)
            video = torch.cat([video, drawn.permute(0, 2, 3, 1)[:, None]], 1)
        again = model(video, noise=noise, return_trace=True)
    assert not torch.equal(video[:, 4], video[:, 6])
    for name in ("images", "masks", "slots", "before", "read"):
        torch.testing.assert_close(getattr(rolled, name), getattr(again, name), msg=name)


@READERS
@ALL
def test_slots_move_then_interact(kind, reader):
    """Written out, from what was read of each frame."""
    model, shown, noise = make(kind, reader), frames(), torch.randn(2, 3, 8)
    placed = reader is PlacedReader

    def move(slots):
        if not placed:
            return slots + model.move(slots)
        return push(slots, RADIUS * model.move(in_radii(slots, RADIUS)))

    def interact(slots):
        if model.interaction is None:
            return slots
        if not placed:
            return model.interaction(slots)
        return in_radii(model.interaction(in_radii(slots, RADIUS)), 1 / RADIUS)

    seen = model(shown, noise=noise)
    for t in range(4):
        start = seen.read[:, t]
        slots = move(start)
        torch.testing.assert_close(seen.before[:, t], slots)
        slots = interact(slots)
        slots = drift(slots, start) if placed else slots
        torch.testing.assert_close(seen.slots[:, t], slots)
        torch.testing.assert_close(seen.images[:, t], model.decoder(slots).images)


@ALL
def test_slots_do_not_grow_without_bounds(kind):
    """A slot that shows nothing is held back by nothing in the loss."""
    model = make(kind, SlotReader)
    torch.nn.init.normal_(model.move[-1].weight, std=30.0)
    predicted = model(frames(), steps=60, return_trace=True)
    for name in ("slots", "before"):
        values = getattr(predicted, name)
        assert values.isfinite().all()
        assert values.abs().max() == LIMIT
    assert predicted.images.isfinite().all()


@pytest.mark.parametrize("kind", ["attention", "snps", "pnps", "gnn"])
def test_slots_that_see_nothing_do_not_interact(kind, monkeypatch):
    """Neither are they changed, nor do they change others; also in a roll-out."""
    model, shown = make(kind, presence=True), frames()
    read = model.reader.read

    def without_the_last(*args, **options):
        slots, _ = read(*args, **options)
        return Read(slots, torch.tensor([True, True, False]).expand(2, 3))

    monkeypatch.setattr(model.reader, "read", without_the_last)
    predicted = model(shown, steps=6, return_trace=True)
    before, after = predicted.before, predicted.slots
    torch.testing.assert_close(after[:, :, 2, 2:], before[:, :, 2, 2:])
    assert not torch.equal(after[:, :, :2, 4:], before[:, :, :2, 4:])
    if predicted.trace is not None:
        assert (predicted.trace.rule[..., 2] == -1).all()
        assert (predicted.trace.context < 2).all()
    alone = model.interaction(in_radii(before[:, 5, :2], RADIUS))
    torch.testing.assert_close(alone[..., 4:], after[:, 5, :2, 4:])


@READERS
@pytest.mark.parametrize("slots", [None, 2, 5])
def test_any_number_of_slots_may_be_started(reader, slots):
    predicted = make("snps", reader)(frames(), slots=slots)
    assert predicted.slots.shape[2] == predicted.masks.shape[2] - 1 == (slots or 3)


@ALL
def test_slots_are_a_set_of_any_number(kind):
    model, shown, noise = make(kind, SlotReader), frames(), torch.randn(2, 5, 8)
    order = torch.randperm(5)
    straight, permuted = (model(shown, slots=5, noise=x) for x in (noise, noise[:, order]))
    torch.testing.assert_close(straight.images, permuted.images, rtol=1e-4, atol=1e-4)
    background = torch.tensor([5])
    torch.testing.assert_close(
        straight.masks[:, :, torch.cat([order, background])], permuted.masks, rtol=1e-4, atol=1e-4
    )


@ALL
@pytest.mark.parametrize("some_see_nothing", [False, True])
def test_a_step_of_slots_with_places_is_equivariant(kind, some_see_nothing):
    """Their first places are taken in an order, so the whole model is only up to that."""
    model, slots, order = make(kind), torch.randn(2, 6, 8), torch.tensor([3, 1, 5, 0, 2, 4])
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.2)
    present = torch.arange(6).expand(2, 6) % 3 > 0 if some_see_nothing else None
    with torch.no_grad():
        new, moved, _ = model.step(slots, present)
        others = None if present is None else present[:, order]
        new_other, moved_other, _ = model.step(slots[:, order], others)
    torch.testing.assert_close(new[:, order], new_other)
    torch.testing.assert_close(moved[:, order], moved_other)
    assert (model.interaction is None) == torch.equal(drift(moved, slots), new)


def test_frames_drawn_at_once_are_those_drawn_one_by_one():
    model, shown, noise = make("snps"), frames(), torch.randn(2, 3, 8)
    together = model(shown, noise=noise)
    with torch.no_grad():
        apart = model(shown, noise=noise)
    for name in ("images", "masks", "disagreement"):
        torch.testing.assert_close(getattr(together, name), getattr(apart, name))


@pytest.mark.parametrize("kind", ["snps", "pnps"])
def test_the_trace_has_a_row_for_each_frame(kind):
    model, shown, noise = make(kind), frames(), torch.randn(2, 3, 8)
    predicted = model(shown, steps=6, noise=noise, return_trace=True)
    assert predicted.trace.rule.shape == (2, 6, 2, 3)
    _, last = model.interaction(in_radii(predicted.before[:, 5], RADIUS), return_trace=True)
    assert torch.equal(predicted.trace.rule[:, 5], last.rule)
    assert torch.equal(predicted.trace.context[:, 5], last.context)
    assert model(shown, noise=noise).trace is None


@pytest.mark.parametrize("kind", ["snps", "pnps"])
def test_rules_that_are_chosen_by_motion_do_not_see_the_rest(kind):
    rules = RuleConfig(3, stages=2, rule_dim=4, null_handicap=2.0)
    model = make(kind)
    torch.manual_seed(0)
    model.interaction = make_interaction(kind, 8, rules, select_by="motion").eval()
    model.select_by = "motion"
    slots = torch.randn(6, 4, 8)
    other = slots.clone()
    other[..., 4:] = torch.randn(6, 4, 4)
    with torch.no_grad():
        model.interaction.rules.weight_out.zero_()
        model.interaction.rules.bias_out.zero_()
        here, there, whole = (model._interact(x, None, True)[1] for x in (slots, other, -slots))
    assert torch.equal(here.rule, there.rule)
    assert torch.equal(here.context, there.context)
    assert not torch.equal(here.rule, whole.rule)


def test_at_first_slots_without_a_place_do_not_move():
    reader, decoder = SlotReader(3, 8, 6), BroadcastDecoder(8, 16, 6)
    model = Scoff(FrameEncoder(16, 6), reader, None, decoder)
    predicted = model(frames(), steps=6)
    assert torch.equal(predicted.slots, predicted.read)


def test_a_phase_without_interaction():
    model, shown, noise = make("snps", SlotReader), frames(), torch.randn(2, 3, 8)
    model.alone = True
    predicted = model(shown, noise=noise, return_trace=True)
    assert torch.equal(predicted.slots, predicted.before)
    assert predicted.trace is None


@ALL
@READERS
def test_every_parameter_learns_also_in_bf16(kind, reader):
    model, shown = make(kind, reader).train(), frames()
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        predicted = model(shown)
        loss = (predicted.images - 0.3).square().sum()
    assert predicted.slots.dtype == predicted.images.dtype == torch.float32
    loss.backward()
    silent = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    # One number for all slots shifts all scores of a softmax alike.
    assert not [name for name in silent if not name.endswith(("in_proj_bias", "null_rule"))]


@ALL
def test_all_interactions_can_start_by_changing_nothing(kind):
    slots = torch.randn(4, 5, 8)
    for zero, same in ((True, True), (False, kind == "none")):
        torch.manual_seed(0)
        rules = RuleConfig(3, stages=2, rule_dim=4, zero_start=zero)
        layer = make_interaction(kind, 8, rules, hidden_dim=16)
        new = slots if layer is None else layer(slots)
        assert torch.equal(new, slots) == same
