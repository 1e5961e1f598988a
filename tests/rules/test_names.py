"""Rules by name: as many names as rules, all different, and usable wherever a rule is meant."""

import copy
import json

import pytest
import torch

from nps import MLPRules, SequentialNPS
from nps.rules import Rule
from nps.rules.names import Names, without_repetitions


def make(*names, kind=MLPRules):
    rules = kind(len(names), 3)
    rules.names = names
    return rules


# -- the names -------------------------------------------------------------------------------------


def test_names_compare_with_lists_and_copy():
    names = Names(["a", "b"])
    assert names == ["a", "b"] == list(names)
    assert names == Names(["a", "b"])
    assert names != ["b", "a"]
    assert (names[0], names[-1], names[:1], len(names)) == ("a", "b", ["a"], 2)
    assert "b" in names
    assert repr(names) == "['a', 'b']"
    assert json.loads(json.dumps(list(names))) == ["a", "b"]
    other = copy.deepcopy(names)
    other[0] = "c"
    assert names == ["a", "b"]


@pytest.mark.parametrize("names", [["a"], ["a", "b", "c"], [], "ab"], ids=repr)
def test_another_number_of_names_is_refused(names):
    rules = make("x", "y")
    with pytest.raises(ValueError, match=r"^names: got .*, expected 2, one for each rule$"):
        rules.names = names
    assert rules.names == ["x", "y"]


@pytest.mark.parametrize("name", ["y", "", None, 3], ids=repr)
def test_names_are_different_strings(name):
    rules = make("x", "y")
    with pytest.raises(ValueError, match=r"^names: got "):
        rules.names[0] = name
    with pytest.raises(ValueError, match=r"^names: got "):
        rules.names = [name, "y"]
    with pytest.raises(ValueError, match=r"^names: got "):
        rules["x"].name = name
    assert rules.names == ["x", "y"]


def test_a_name_may_be_given_again():
    rules = make("x", "y")
    rules.names[1] = "y"
    rules.names = ["y", "x"]
    assert rules.names == ["y", "x"]


def test_names_stay_different_through_surgery():
    rules = make("rule 3", "push", "rule 0")
    rules.add(2)
    rules.remove("push")
    rules.add()
    rules.copy_from(make("a", "rule 0"), 1, to=0)
    rules.resize(8)
    assert len(rules) == len(rules.names) == len(set(rules.names)) == 8
    assert rules.names[:2] == ["rule 3", "rule 0"]


def test_old_states_with_a_name_twice_can_be_read():
    repeated = ["a", "a", "a 2", "b", "a"]
    assert list(without_repetitions(repeated)) == ["a", "a 2", "a 2 2", "b", "a 3"]
    rules = make("x", "y")
    text = json.dumps({"names": ["push", "push"], "frozen": [1]})
    rules.set_extra_state(torch.tensor(list(text.encode()), dtype=torch.uint8))
    assert rules.names == ["push", "push 2"]
    assert rules.frozen == [1]


# -- rules by name ---------------------------------------------------------------------------------


def test_every_operation_takes_names():
    rules = make("push", "turn", "stay")
    rules.freeze("push", "stay")
    assert rules.frozen == [0, 2]
    rules.unfreeze("push")
    assert rules.frozen == [2]
    other = make("stay", "pull", "turn")
    rules.copy_from(other, "pull", to="turn")
    assert rules.names == ["push", "pull", "stay"]
    assert torch.equal(rules["pull"].embedding, other["pull"].embedding)
    rules.unfreeze("stay")
    rules.copy_from(other, "stay")  # to the rule of the same name
    assert torch.equal(rules[2].embedding, other[0].embedding)
    rules.remove("push")
    assert rules.names == ["pull", "stay"]


def test_a_mistyped_name_gets_the_nearest():
    rules = make("push", "turn")
    with pytest.raises(ValueError, match=r"^rule: got 'psuh', .*; did you mean 'push'\?$"):
        rules.freeze("turn", "psuh")
    assert rules.frozen == []
    with pytest.raises(ValueError, match=r"; there are 'push', 'turn'$"):
        rules["x"]


def test_iteration_gives_views():
    rules = make("push", "turn")
    rules.freeze(1)
    assert [rule.name for rule in rules] == ["push", "turn"]
    assert [rule.index for rule in rules] == [0, 1]
    assert [rule.frozen for rule in rules] == [False, True]
    assert repr(list(rules)) == "[Rule(0, 'push'), Rule(1, 'turn', frozen)]"
    assert rules["turn"] == rules[1] == rules[-1] == list(rules)[1] == rules[rules[1]]
    assert len({*rules, *rules}) == 2
    assert "push" in rules
    assert "pull" not in rules
    assert rules[0] in rules
    assert make("push")[0] not in rules
    assert isinstance(rules[0], Rule)


def test_a_view_shows_the_rule_as_it_acts():
    layer = SequentialNPS(3, 2)
    layer.rules.freeze(0)
    before = layer.rules[0].embedding.clone()
    with torch.no_grad():
        layer.rules.embedding.add_(1.0)
    assert torch.equal(layer.rules[0].embedding, before)
    for rule in layer.rules:
        shapes = {name: tuple(x.shape) for name, x in rule.parameters.items()}
        assert shapes == {name: tuple(p.shape[1:]) for name, p in layer.rules.named_parameters()}
        assert torch.equal(rule.parameters["weight_in"], layer.rules.weight_in[rule.index])


def test_a_view_follows_its_rule():
    rules = make("a", "b", "c")
    first, last = rules["a"], rules["c"]
    rules.remove(0)
    assert (last.index, last.name) == (1, "c")
    last.name = "z"
    assert rules.names == ["b", "z"]
    rules.freeze(last)
    assert rules.frozen == [1]
    with pytest.raises(ValueError, match="removed"):
        _ = first.index
    with pytest.raises(ValueError, match="another rule set"):
        make("b", "z").freeze(last)


def test_names_and_views_survive_a_deep_copy():
    rules = make("push", "turn")
    other = copy.deepcopy(rules)
    other["push"].name = "pull"
    assert rules.names == ["push", "turn"]
    assert other.names == ["pull", "turn"]
