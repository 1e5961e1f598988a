"""Descriptions of rules as they are read: in lines, in a notebook and as JSON."""

import dataclasses
import json

from nps.inspect.description import Description, Does, When
from nps.inspect.relatives import Relative

PUSH = Description(
    rule=1,
    name="push <north>",
    uses=30,
    share=0.25,
    when=When(("action is north: fires (30)",), 0.9, 0.5),
    does=Does("row of the slot −= 0.2", 0.98, True),
    relatives=(Relative(0, -0.9, 0.1), Relative(2, 0.1, 0.1)),
    by={"object": {"block 0": 0.75, "block 1": 0.25}},
    episodes=4,
)
NEVER = dataclasses.replace(PUSH, uses=0, share=0.0, when=None, does=None, relatives=(), by={})


def test_lines():
    assert str(PUSH).splitlines() == [
        "push <north>: 30 uses, 25% of all firings",
        "does: row of the slot −= 0.2 (R² 0.98)",
        "when (90% right, 50% by chance):",
        "  action is north: fires (30)",
        "by object: block 0 75%, block 1 25%",
        "opposite of rule 0: similarity -0.90",
    ]
    assert str(NEVER) == "push <north>: 0 uses, 0% of all firings"


def test_what_always_fires_is_compared_with_nothing():
    always = dataclasses.replace(PUSH, when=When(("on every slot",), 1.0, 1.0))
    assert "when:" in always.lines()


def test_relatives_are_told_if_they_are_like_or_opposite():
    like = dataclasses.replace(PUSH, relatives=(Relative(2, 0.4, 0.1),))
    assert like.lines()[-1] == "like rule 2: similarity 0.40"
    neither = dataclasses.replace(PUSH, relatives=(Relative(2, 0.1, 0.1),))
    assert neither.lines()[-1].startswith("by object")


def test_a_notebook_shows_text_as_text():
    assert PUSH._repr_html_().startswith("<p><b>push &lt;north&gt;: 30 uses")


def test_json():
    for each in (PUSH, NEVER):
        data = json.loads(json.dumps(each.to_json(), allow_nan=False))
        assert data["rule"] == each.rule
        assert (data["when"] is None) == (each.when is None)
    assert json.loads(json.dumps(PUSH.to_json()))["does"]["r2"] == 0.98
