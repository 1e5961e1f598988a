"""What if, on the hand-made workbench."""

import numpy as np
import pytest

from nps import inspect
from nps.errors import UserError
from nps.inspect.counterfactual import in_words, mean_error, what_if
from nps.inspect.edits import Acted, Added, Edits, Forced, Placed, Scaled
from nps.inspect.uses import usage
from tests.viewer.fake import FakeWorkbench


@pytest.fixture(scope="module")
def bench():
    return FakeWorkbench()


def test_a_rule_switched_off(bench):
    found = what_if(bench, 1, disable="rule 1")
    assert found.edits == Edits(disabled=(1,))
    assert np.array_equal(found.before.slots, bench.play(1).slots)
    assert np.array_equal(found.after.slots, bench.play(1, found.edits).slots)
    assert 1 not in found.after.record.rule
    assert 1 in found.before.record.rule
    differs = [
        t
        for t in range(13)
        if not np.array_equal(*(p.predicted[t] for p in (found.before, found.after)))
    ]
    assert found.first_difference == differs[0] > 0
    assert found.changed_firings == (found.before.record.rule != found.after.record.rule).sum()
    assert found.error == (found.before.error[1:].mean(), found.after.error[1:].mean())
    said = repr(found)
    assert f"first difference in frame {differs[0]} of 12" in said
    assert "rule 1 off" in said


def test_edits_add_up(bench):
    force = Forced(0, 1, rule=2)
    found = what_if(bench, disable=[0, "rule 3"], force=force, edits=Edits(disabled=(5,)))
    assert found.edits == Edits(disabled=(5, 0, 3), forced=(force,))
    assert found.after.record.rule[0, 0].tolist() == [-1, 2, -1]
    same = what_if(bench)
    assert same.first_difference is None
    assert same.changed_firings == 0
    assert "nothing is predicted differently" in repr(same)


def test_encodings_may_differ_where_pictures_do_not(bench):
    rule = int(bench.play(0).record.rule.max())
    found = what_if(bench, edits=Edits(scaled=(Scaled(rule, 0.999),)))
    assert (found.before.predicted == found.after.predicted).all()
    assert found.first_difference is None
    slots = (found.before.slots, found.after.slots)
    assert found.first_change == np.argwhere((slots[0] != slots[1]).any((1, 2)))[0, 0]
    said = f"the same pictures; the encodings differ from frame {found.first_change}"
    assert said in repr(found)


def test_the_picture_is_self_contained(bench):
    html = what_if(bench, disable=0)._repr_html_()
    assert html.count("<svg") == 2
    for word in ("<script", "http://", "src=", "href="):
        assert word not in html.replace('xmlns="http://www.w3.org/2000/svg"', "")


def test_bad_questions(bench):
    for asked, message in [
        ({"episode": 5}, "episode: got 5, expected 0 to 4"),
        ({"disable": 6}, "rule: got 6"),
        ({"disable": "push"}, "rule: got 'push'"),
        ({"force": Forced(0, 3, rule=0)}, "slot: got 3"),
        ({"force": Forced(99, 0, rule=0)}, "step: got 99"),
    ]:
        with pytest.raises(UserError, match=message):
            what_if(bench, **asked)
    with pytest.raises(UserError, match="no rules"):
        what_if(FakeWorkbench(with_rules=False), disable=0)
    with pytest.raises(UserError, match="got int, expected a run"):
        what_if(3)


def test_edits_in_words():
    edits = Edits(
        disabled=(0,),
        scaled=(Scaled(1, 0.5),),
        added=(Added(1, "row", 0.2),),
        forced=(Forced(3, 1, rule=0, context=2), Forced(4, 0, rule=-1)),
        placed=(Placed(0, 1, "row", 0.25),),
        acted=(Acted(2, 7),),
    )
    assert in_words(edits, ["push", "turn"]) == (
        "push off, turn times 0.5, turn adds +0.2 to row, slot 1 at step 3: push, context 2, "
        "slot 0 at step 4: nothing, slot 1 at step 0: row 0.25, action 7 at step 2"
    )
    assert in_words(Edits(), []) == ""


def test_usage_of_whatever_was_recorded(bench):
    play = bench.play(0)
    rule = play.record.rule
    expected = tuple(np.bincount(rule[rule >= 0], minlength=6).tolist())
    assert usage(play).counts == usage(play.record).counts == expected
    assert inspect.usage(play, list("abcdef")).names == tuple("abcdef")
    for wrong in (3, None):
        with pytest.raises(UserError):
            usage(wrong)


def test_errors_that_are_not_known(bench):
    play = bench.play(0)
    error = np.full(13, np.nan)
    assert np.isnan(mean_error(type(play)(**{**play.__dict__, "error": error})))
