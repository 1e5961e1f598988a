"""Grids: what is typed becomes configs, each once, and mistakes are named."""

import itertools
import re

import pytest

from nps.errors import UserError
from nps.experiments.arithmetic import Config
from nps.jobs.grid import parse_grid, points


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("rules=1,2,4", (1, 2, 4)),
        ("rules=4, 2,4", (4, 2)),  # each once, in the order given
        ("dropout=0,0.10,1e-1", (0.0, 0.1)),
        ("clip-norm=none,1", (None, 1.0)),
        ("self-context=true,False", (True, False)),
        ("model=routing,nps", ("routing", "nps")),
    ],
)
def test_values_are_read_by_the_type_of_the_field(text, values):
    grid = parse_grid(Config, [text])
    read = grid[text.partition("=")[0].replace("-", "_")]
    assert read == values
    assert list(map(type, read)) == list(map(type, values))


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["rulez=2"], "unknown field 'rulez'; did you mean rules?"),
        (["rules"], "got 'rules', expected NAME=VALUE,VALUE"),
        (["rules=two"], "rules: got 'two', expected int"),
        (["rules=2.5"], "rules: got '2.5', expected int"),
        (["rules=2,"], "rules: got '', expected int"),
        (["dropout=none"], "dropout: got 'none', expected float"),
        (["clip-norm=x"], "clip_norm: got 'x', expected float or none"),
        (["self-context=1"], "self_context: got '1', expected bool"),
        (["model=conv"], "model: got 'conv', expected one of nps, routing"),
        (["rules=2", "rules=4"], "got rules twice"),
    ],
)
def test_mistakes_are_named(texts, message):
    with pytest.raises(UserError, match=re.escape(message)):
        parse_grid(Config, texts)


def test_points_are_the_product_with_names_fit_for_folders():
    grid = parse_grid(Config, ["rules=2,4", "dropout=0,0.1", "clip-norm=none,1e-5"])
    found = points(Config(epochs=7), grid, default_name="x")
    wanted = list(itertools.product((2, 4), (0.0, 0.1), (None, 1e-5)))
    assert [(p.config.rules, p.config.dropout, p.config.clip_norm) for p in found] == wanted
    assert all(p.config.epochs == 7 for p in found)
    assert found[0].name == "rules=2,dropout=0.0,clip_norm=none"
    assert len({p.name for p in found}) == 8
    assert all(re.fullmatch(r"[\w.,=+-]+", p.name) for p in found)


def test_no_grid_is_one_point():
    (point,) = points(Config(), {}, default_name="arithmetic")
    assert (point.name, point.config) == ("arithmetic", Config())


def test_a_point_that_cannot_be_is_refused():
    with pytest.raises(UserError, match=r"--grid rules=2,dropout=1.5: .*dropout: got 1.5"):
        points(Config(), parse_grid(Config, ["rules=2", "dropout=0.1,1.5"]), default_name="x")
