"""OP3: sizes, loss, what refinement reads, schedule, rules in place of its dynamics."""

import pytest
import torch
from torch.distributions import Normal, kl_divergence

from nps.interactions import Pairwise
from nps.models.op3 import OP3, SIGMA, make_interaction
from nps.models.op3_schedule import loss_weights, rprp
from nps.models.op3_state import deviation
from nps.rules import RuleConfig

SMALL = {"latent_dim": 4, "channels": 3, "hidden_dim": 5}
S, K = 8, 3
RULES = RuleConfig(3, stages=2, rule_dim=6, key_dim=4, hidden_dim=7)
KINDS = pytest.mark.parametrize("kind", ["op3", "snps", "pnps", "none"])


def small(kind="op3", **options):
    torch.manual_seed(0)
    return OP3(make_interaction(kind, RULES, latent_dim=4), S, **SMALL, **options)


def some_frames(count=2, batch=2):
    return torch.rand(batch, count, 3, S, S, generator=torch.Generator().manual_seed(1))


def count(module):
    return sum(p.numel() for p in module.parameters())


def test_as_many_parameters_as_the_published_one():
    model = OP3(Pairwise(128))
    parts = model.refinement, model.dynamics, model.decoder
    assert tuple(map(count, parts)) == (411_296, 280_417, 184_132)
    assert count(model) == 876_305


def test_the_papers_rules_replace_only_the_interaction():
    rules = RuleConfig(10, stages=3, rule_dim=64)
    layer = make_interaction("snps", rules)
    assert (layer.slot_dim, len(layer.rules), layer.stages) == (128, 10, 3)
    others = count(OP3(None))
    assert count(OP3(layer)) == others + count(layer)
    assert others + count(Pairwise(128)) == 876_305


def test_the_loss_is_that_of_a_plain_loop():
    model, frames = small(), some_frames()
    state = model.begin(2, K)
    state = state._replace(prior_mean=torch.randn_like(state.mean), prior_spread=state.spread * 2)
    drawn = model.draw(state)
    loss = model.loss(state, drawn, frames[:, 0])
    pixels = apart = 0.0
    for b in range(2):
        for y in range(S):
            for x in range(S):
                likelihood = 0.0
                for k in range(K):
                    off = drawn.colours[b, k, :, y, x] - frames[b, 0, :, y, x]
                    density = (-(off**2).sum() / (6 * SIGMA**2)).exp() / (SIGMA**3 * 248.05)
                    assert loss.of_slots[b, k, y, x].item() == pytest.approx(
                        density.item(), rel=1e-4
                    )
                    likelihood = likelihood + drawn.masks[b, k, 0, y, x] * density
                assert loss.likelihood[b, y, x].item() == pytest.approx(likelihood.item(), rel=1e-4)
                pixels = pixels - (likelihood + 1e-12).log()
        own = Normal(state.mean[b], deviation(state.spread[b]))
        prior = Normal(state.prior_mean[b], deviation(state.prior_spread[b]))
        apart = apart + kl_divergence(own, prior).sum()
    torch.testing.assert_close(loss.pixels, pixels / 2, rtol=1e-4, atol=0)
    torch.testing.assert_close(loss.divergence, apart / 2, rtol=1e-4, atol=0)
    torch.testing.assert_close(loss.total, loss.pixels + 0.01 * loss.divergence)


def test_the_first_prior_is_the_standard_normal_distribution():
    state = small().begin(1, K)
    assert (state.prior_mean == 0).all()
    torch.testing.assert_close(
        deviation(state.prior_spread), torch.ones(1, K, 4), atol=1e-4, rtol=0
    )


def inputs_of(model, step):
    """What the refinement network is given in the refinements that `step` makes."""
    given = []
    hook = model.refinement.register_forward_pre_hook(lambda _, inputs: given.append(inputs))
    step()
    hook.remove()
    return given


def test_what_refinement_reads():
    """Gradients are those of the loss, by finite differences, standardised and detached."""
    model, frames = small().double(), some_frames().double()
    state = model.begin(2, K)
    drawn = model.draw(state)
    loss = model.loss(state, drawn, frames[:, 0])
    ((images, vectors, memory),) = inputs_of(
        model, lambda: model.refine(state, drawn, loss, frames[:, 0])
    )
    images, vectors = images.unflatten(0, (2, K)), vectors.unflatten(0, (2, K))
    same = torch.testing.assert_close
    same(images[:, 1, :3], frames[:, 0])
    same(images[:, :, 3:6], drawn.colours)
    same(images[:, :, 6:7], drawn.masks)
    same(images[:, :, 7:8], drawn.logits)
    posterior = loss.of_slots / (loss.of_slots.sum(1, keepdim=True) + 1e-8)
    same(images[:, :, 8], posterior)
    other = loss.likelihood[0] - drawn.masks[0, 2, 0] * loss.of_slots[0, 2]
    for channel, norm, raw in (
        (10, model.of_pixels, loss.likelihood[0]),
        (11, model.of_others, other),
    ):
        same(images[0, 2, channel], norm(raw[None, None])[0, 0])
    same(vectors[..., 8:12], state.mean)
    same(vectors[..., 12:16], state.spread)
    same(vectors[..., 16:], state.latent)
    assert all((part == 0).all() for part in memory)

    def total(**changes):
        changed = state._replace(**changes)
        return model.loss(changed, model.draw(changed), frames[:, 0]).total

    for start, norm, name in ((0, model.of_mean, "mean"), (4, model.of_spread, "spread")):
        gradient = torch.zeros_like(state.mean)
        for index in torch.cartesian_prod(torch.arange(2), torch.arange(K), torch.arange(4)):
            shift = torch.zeros_like(gradient)
            shift[tuple(index)] = 1e-5
            up, down = (total(**{name: getattr(state, name) + s * shift}) for s in (1, -1))
            gradient[tuple(index)] = (up - down) / 2e-5
        expected = norm(gradient.flatten(0, 1)).unflatten(0, (2, K))
        same(vectors[..., start : start + 4], expected, rtol=1e-3, atol=1e-4)
    for channels, norm, name in (
        ((12, 15), model.of_colours, "colours"),
        ((9, 10), model.of_masks, "masks"),
    ):
        gradient = torch.zeros(3 if name == "colours" else 1, S, S).double()
        for c in range(len(gradient)):
            for y, x in ((0, 0), (3, 5), (7, 7)):
                shift = torch.zeros_like(getattr(drawn, name))
                shift[1, 0, c, y, x] = 1e-6
                up, down = (
                    model.loss(
                        state,
                        drawn._replace(**{name: getattr(drawn, name) + s * shift}),
                        frames[:, 0],
                    )
                    for s in (1, -1)
                )
                gradient[c, y, x] = (up.total - down.total) / 2e-6
        (raw,) = torch.autograd.grad(loss.total, [getattr(drawn, name)], retain_graph=True)
        for c in range(len(gradient)):
            for y, x in ((0, 0), (3, 5), (7, 7)):
                assert raw[1, 0, c, y, x].item() == pytest.approx(
                    gradient[c, y, x].item(), rel=1e-4, abs=1e-6
                )
        same(images[1, 0, slice(*channels)], norm(raw[1, :1])[0])


def test_gradients_that_are_inputs_are_not_learned_through():
    model, frames = small(), some_frames()
    seen = []
    norms = (model.of_masks, model.of_pixels, model.of_others, model.of_colours)
    hooks = [
        norm.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].requires_grad))
        for norm in (*norms, model.of_mean, model.of_spread)
    ]
    (*_, last) = model(frames, rprp(2, first=2, later=1), K)
    for hook in hooks:
        hook.remove()
    assert len(seen) == 3 * 6
    assert not any(seen)
    assert last.loss.total.requires_grad


@KINDS
def test_every_part_learns(kind):
    model, frames = small(kind), some_frames()
    schedule = rprp(2, first=2, later=2)
    moments = list(model(frames, schedule, K, return_trace=True))
    assert [moment.frame for moment in moments] == [0, 0, 1, 1, 1]
    weights = loss_weights(schedule)
    sum(w * m.loss.total for w, m in zip(weights, moments, strict=True)).backward()
    still = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert not [name for name in still if "rules" not in name and "null" not in name]
    traces = [moment.trace for moment in moments if moment.step == "move"]
    assert all((trace is None) == (kind in ("op3", "none")) for trace in traces)
    if kind == "snps":
        assert traces[0].rule.shape == (2, RULES.stages, K)


@KINDS
def test_without_gradients_it_does_the_same(kind):
    model, frames = small(kind).eval(), some_frames()
    noise = torch.randn(2, K, 4)
    schedule = rprp(2)
    here = list(model(frames, schedule, K, noise=noise))
    with torch.no_grad():
        there = list(model(frames, schedule, K, noise=noise))
    for a, b in zip(here, there, strict=True):
        torch.testing.assert_close(a.drawn.masks, b.drawn.masks)
        assert not b.drawn.masks.requires_grad


@KINDS
def test_equivariant_to_the_order_of_slots(kind):
    model, frames = small(kind).eval(), some_frames()
    noise, order = torch.randn(2, K, 4), torch.tensor([2, 0, 1])
    with torch.no_grad():
        (*_, here) = model(frames, rprp(2), K, noise=noise)
        (*_, there) = model(frames, rprp(2), K, noise=noise[:, order])
    torch.testing.assert_close(here.drawn.masks[:, order], there.drawn.masks, rtol=1e-3, atol=1e-5)


def test_moves_beyond_the_last_frame_need_no_picture():
    model, frames = small("snps").eval(), some_frames(1)
    with torch.no_grad():
        moments = list(model(frames, ["refine", "move", "move"], K))
    assert [moment.frame for moment in moments] == [0, 1, 2]
    assert [moment.loss is None for moment in moments] == [False, True, True]
    assert moments[-1].drawn.colours.isfinite().all()


def test_the_published_schedule_and_weights():
    schedule = rprp(5)
    assert "".join(step[0] for step in schedule) == "rrrr" + 4 * "mrr"
    weights = [0.25, 0.5, 0.75, 1.0] + 4 * [1.0, 0.5, 1.0]
    assert loss_weights(schedule) == pytest.approx([w / sum(weights) for w in weights])


@pytest.mark.parametrize(
    ("schedule", "says"),
    [
        (["refine", "look"], "schedule: got 'look' in place 1"),
        (["refine", "move", "move", "refine"], "schedule: got a refinement on frame 2, expected"),
    ],
)
def test_bad_schedules_are_refused(schedule, says):
    with pytest.raises(ValueError, match=says):
        list(small()(some_frames(), schedule, K))


def test_it_learns_to_draw_what_it_sees():
    model, schedule = small().train(), rprp(1, first=3)
    frames = torch.zeros(4, 1, 3, S, S)
    frames[:, :, 0, 2:5, 3:6] = 1.0
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    losses = []
    for _ in range(25):
        (*_, last) = model(frames, schedule, K)
        optimiser.zero_grad()
        last.loss.total.backward()
        optimiser.step()
        losses.append(last.loss.pixels.item())
    assert losses[-1] < losses[0] - 100
