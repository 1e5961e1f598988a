"""What a trace says about itself: as text, as HTML, and as the use of its rules."""

import collections
import math
import re
import warnings

import pytest
import torch
from torch.func import vmap

from nps import ParallelNPS, SequentialNPS, Trace
from nps.rules import Usage

BOTH = pytest.mark.parametrize("kind", [SequentialNPS, ParallelNPS])


def traced(kind, *batch, slots=5, rules=4, stages=3):
    torch.manual_seed(0)
    layer = kind(6, rules, stages=stages)
    return layer(torch.randn(*batch, slots, 6), return_trace=True)[1]


def trace_of(rule, num_rules):
    """A trace in which these rules fired, (..., K, M)."""
    rule = torch.tensor(rule)
    none = torch.full_like(rule, -1)
    m = rule.shape[-1]
    return Trace(rule, none, torch.zeros(*rule.shape, num_rules), torch.zeros(*rule.shape, m))


# -- moving ----------------------------------------------------------------------------------------


@BOTH
def test_detach_drops_gradients_and_keeps_values(kind):
    trace = traced(kind, 7)
    kept = trace.detach()
    assert trace.rule_scores.requires_grad
    assert isinstance(kept, Trace)
    assert not any(part.requires_grad for part in kept)
    assert all(torch.equal(a, b) for a, b in zip(kept, trace, strict=True))


def test_to_moves_everything():
    trace = traced(SequentialNPS, 7)
    assert all(part.is_meta for part in trace.to("meta"))
    assert all(a is b for a, b in zip(trace.cpu(), trace, strict=True))


# -- reading ---------------------------------------------------------------------------------------


def test_the_text_shows_the_first_batch_element():
    rule, context = torch.tensor([[[1, -1], [-1, 0]]] * 3), torch.tensor([[[0, -1], [-1, -1]]] * 3)
    trace = Trace(rule, context, torch.zeros(3, 2, 2, 4), torch.zeros(3, 2, 2, 2))
    assert repr(trace).splitlines() == [
        "Trace(batch=(3,), stages=2, slots=2, rules=4, device=cpu)",
        "batch element 0, rule ← context:",
        "stage  slot 0  slot 1",
        "0      1 ← 0   ·",
        "1      ·       0",
    ]
    assert repr(trace.table(["push", "turn", "c", "d"])).splitlines()[3:] == [
        "0      turn ← 0  ·",
        "1      ·         push",
    ]


@BOTH
def test_the_table_has_every_choice(kind):
    trace = traced(kind, 2, 3)
    names = ["a", "b", "c", "d"]
    for at in range(6):
        html = trace.table(names, at=at)._repr_html_()
        cells = re.findall("<td>(.*?)</td>", html)
        rule, context = trace.rule[at // 3, at % 3], trace.context[at // 3, at % 3]
        expected = [
            "·" if r < 0 else f"{names[r]} ← slot {c}" if c >= 0 else names[r]
            for r, c in zip(rule.flatten().tolist(), context.flatten().tolist(), strict=True)
        ]
        assert cells == expected
        assert f"batch element {at}," in html
        assert html.count("<tr>") == 1 + 3
    assert trace._repr_html_() == trace.picture() + trace.table()._repr_html_()


@BOTH
def test_a_large_trace_fits_on_a_screen(kind):
    trace = traced(kind, 100, slots=40, rules=50, stages=30)
    lines = repr(trace).splitlines()
    assert len(lines) <= 12
    assert max(map(len, lines)) <= 80
    assert lines[-1] == "the first 8 stages and 8 slots of 30 and 40"
    assert len(re.findall("<td>", trace._repr_html_())) == 20 * 20
    assert len(trace.picture()) < 30_000
    assert len(trace._repr_html_()) < 50_000
    long = trace.table(["x" * 1000 + str(i) for i in range(50)])
    assert len(repr(long)) < 20_000


def test_names_are_escaped():
    html = trace_of([[0]], 1).table(["<script>"])._repr_html_()
    assert "&lt;script&gt;" in html
    assert "<script>" not in html


@pytest.mark.parametrize("at", [6, -7])
def test_an_element_that_is_not_there(at):
    with pytest.raises(ValueError, match=rf"^at: got {at}, expected 0 to 5"):
        traced(SequentialNPS, 2, 3).table(at=at)


def test_another_number_of_names_is_refused():
    trace = traced(SequentialNPS, 2)
    for call in (trace.table, trace.usage):
        with pytest.raises(ValueError, match=r"^names: got 3, expected 4"):
            call(["a", "b", "c"])


def test_traces_without_values_have_a_text_too():
    trace = traced(SequentialNPS, 7)
    assert repr(trace.to("meta")).endswith("device=meta)")
    assert repr(traced(SequentialNPS, 0)).startswith("Trace(batch=(0,)")
    assert traced(SequentialNPS, 0)._repr_html_().startswith("<p>Trace(batch=(0,)")
    seen = []
    layer = SequentialNPS(6, 4)

    def call(slots, noise):
        _, trace = layer(slots, noise=noise, return_trace=True)
        seen.append((repr(trace), trace._repr_html_()))
        return trace

    stacked = vmap(call)(torch.randn(3, 2, 5, 6), torch.rand(3, *layer.noise_shape(2, slots=5)))
    assert isinstance(stacked, Trace)
    assert seen[0][0] == "Trace(batch=(2,), stages=1, slots=5, rules=4, device=cpu)"


# -- use -------------------------------------------------------------------------------------------


@BOTH
def test_usage_counts_every_firing(kind):
    trace = traced(kind, 20, 3)
    usage = trace.usage(list("abcd"))
    counts = collections.Counter(trace.rule.flatten().tolist())
    assert usage.counts == tuple(counts[i] for i in range(4))
    assert usage.unchanged == counts[-1]
    assert usage.firings == trace.fired.sum()
    assert usage.shares == {name: counts[i] / usage.firings for i, name in enumerate("abcd")}
    assert usage.null == pytest.approx(1 - trace.fired.float().mean().item())
    shares = torch.tensor(list(usage.shares.values()), dtype=torch.float64)
    entropy = torch.distributions.Categorical(shares).entropy().item() / math.log(2)
    assert usage.entropy == pytest.approx(entropy)
    assert usage.effective_rules == pytest.approx(2**entropy)


@pytest.mark.parametrize(
    ("rule", "entropy", "effective"),
    [([[0, 1, 2, 3]], 2.0, 4.0), ([[1, -1, 1, -1]], 0.0, 1.0), ([[-1, -1]], 0.0, 0.0)],
)
def test_usage_of_simple_cases(rule, entropy, effective):
    usage = trace_of(rule, 4).usage()
    assert (usage.entropy, usage.effective_rules) == (entropy, effective)


def test_the_text_of_a_usage_is_one_line():
    text = repr(trace_of([[0, 1, 1, -1]], 2).usage(["push", "turn"]))
    assert text == (
        "Usage(3 firings: turn 67%, push 33%; unchanged slots 25%; "
        "entropy 0.92 bits, 1.9 effective rules)"
    )
    assert len(repr(traced(ParallelNPS, 100, rules=50).usage())) < 250


@pytest.mark.parametrize(
    ("counts", "collapsed"),
    [((200, 1), True), ((100, 0), True), ((99, 1), False), ((10, 0), False), ((100,), False)],
)
def test_collapse_is_one_rule_that_takes_everything(counts, collapsed):
    rule = [i for i, count in enumerate(counts) for _ in range(count)]
    trace = trace_of([rule], len(counts))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        usage = trace.usage()
    assert isinstance(usage, Usage)
    assert usage.collapsed == collapsed
    texts = [str(each.message) for each in found]
    assert [text.startswith("the rules have collapsed: rule 0 takes") for text in texts] == (
        [True] if collapsed else []
    )
    assert all(each.filename == __file__ and "\n" not in str(each.message) for each in found)


def test_one_rule_that_wins_everything_is_reported_by_a_layer():
    torch.manual_seed(0)
    layer = SequentialNPS(6, 4)
    with layer.rules.disabled(0, 1, 2):
        _, trace = layer(torch.randn(50, 5, 6), return_trace=True)
    with pytest.warns(UserWarning, match=r"turn takes 100\.0% of 50 firings"):
        trace.usage(["a", "b", "c", "turn"])
