"""The tracker: causal, draws what it saw and what it expects, and goes on without input."""

import pytest
import torch

from nps.models.scoff import make_interaction
from nps.models.tracker import Tracker
from nps.perception.births import BirthReader
from nps.perception.frames import FrameEncoder
from nps.perception.patches import PatchDecoder
from nps.perception.places import in_radii
from nps.rules import RuleConfig

KINDS = ("attention", "snps", "pnps", "gnn", "none")
ALL = pytest.mark.parametrize("kind", KINDS)
RADIUS = 0.3


def make(kind="snps"):
    torch.manual_seed(0)
    rules = RuleConfig(3, stages=2, rule_dim=4, null_handicap=2.0)
    model = Tracker(
        FrameEncoder(16, 6, position=False),
        BirthReader(3, 8, 6, side=4, extent=RADIUS),
        make_interaction(kind, 8, rules, hidden_dim=16),
        PatchDecoder(8, 16, 6, extent=RADIUS),
        radius=RADIUS,
        hidden_dim=16,
    ).eval()
    torch.nn.init.normal_(model.move[-1].weight, std=0.1)  # it starts at zero
    return model


def frames(t=4):
    torch.manual_seed(1)
    return torch.randint(256, (2, t, 16, 16, 3), dtype=torch.uint8)


@ALL
def test_it_knows_only_what_it_has_seen(kind):
    model, shown = make(kind), frames()
    other = shown.clone()
    other[:, 2:] = 255 - other[:, 2:]
    with torch.no_grad():
        first, second = model(shown), model(other)
    assert torch.equal(first.read[:, :2], second.read[:, :2])
    assert torch.equal(first.expected[:, :2], second.expected[:, :2])
    assert not torch.equal(first.read[:, 2:], second.read[:, 2:])


@ALL
def test_moving_and_interacting_written_out(kind):
    model = make(kind)
    slots = torch.randn(2, 3, 8).clamp(-0.5, 0.5)
    present = torch.tensor([[True, True, False], [True, True, True]])
    with torch.no_grad():
        later, _ = model.advance(slots, present)
        seen = in_radii(slots, RADIUS)
        moved = torch.cat([seen[..., :2], seen[..., 2:] + model.move(seen)], -1)
        if model.interaction is not None:
            moved = model.interaction(moved, slot_mask=present)
        new = in_radii(moved, 1 / RADIUS)
    torch.testing.assert_close(later[..., 4:], new[..., 4:])
    torch.testing.assert_close(later[..., 2:4], new[..., 2:4].clamp(-1, 1))
    way = 0.5 * new[..., 2:4].clamp(-1, 1)
    torch.testing.assert_close(later[..., :2], (slots[..., :2] + way).clamp(-1, 1))


def test_expected_frames_are_drawn_from_the_slots_before():
    model = make()
    with torch.no_grad():
        watching = model(frames())
        seen, expected = model.draw_both(watching)
        assert seen.images.shape == (2, 4, 3, 16, 16)
        assert expected.masks.shape == (2, 3, 4, 16, 16)
        for t in range(4):
            now = model.decoder(watching.read[:, t], watching.present[:, t])
            torch.testing.assert_close(seen.images[:, t], now.images)
        for t in range(3):
            later = model.decoder(watching.expected[:, t], watching.present[:, t])
            torch.testing.assert_close(expected.masks[:, t], later.masks)
    with_gradient = model.draw_both(watching)
    for ours, theirs in zip(with_gradient, (seen, expected), strict=True):
        torch.testing.assert_close(ours.images, theirs.images)


def test_going_on_is_advancing_at_every_moment():
    model = make()
    with torch.no_grad():
        watching = model(frames())
        later = model.go_on(watching.expected, watching.present)
        for t in range(4):
            one, _ = model.advance(watching.expected[:, t], watching.present[:, t])
            torch.testing.assert_close(later[:, t], one)


def test_traces_have_time_behind_the_batch():
    trace = make("snps")(frames(), return_trace=True).trace
    assert trace.rule.shape == (2, 4, 2, 3)
    assert make("gnn")(frames(), return_trace=True).trace is None
    assert make("snps")(frames()).trace is None


@ALL
def test_everything_learns(kind):
    model = make(kind).train()
    torch.manual_seed(3)
    seen, expected = model.draw_both(model(frames()))
    (seen.images.square().mean() + expected.images.square().mean()).backward()
    unused = [name for name, p in model.named_parameters() if p.grad is None]
    assert not unused
