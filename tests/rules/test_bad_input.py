"""Wrong input gets a `ValueError` of one line that names the argument."""

import math
import re

import pytest
import torch

from nps import ConvRules, MLPRules, ParallelNPS, SequentialNPS
from nps.rules.check import require_finite

BOTH = pytest.mark.parametrize("kind", [SequentialNPS, ParallelNPS])
NAN, INF = math.nan, math.inf


def assert_refused(call, name):
    with pytest.raises(ValueError) as caught:
        call()
    message = str(caught.value)
    assert re.search(rf"\b{name}\b", message)
    assert "\n" not in message


def with_value(tensor, value):
    tensor = tensor.clone()
    tensor[0, -1, 0] = value
    return tensor


# -- constructors ----------------------------------------------------------------------------------

NOT_SIZES = [0, -1, 2.0, 1.5, True, "8"]
NOT_NUMBERS = [NAN, True, "1", None]
WRONG = [
    *[("slot_dim", v) for v in [*NOT_SIZES, None, torch.ones(2, 2)]],  # its repr has two lines
    *[("context_dropout", v) for v in [*NOT_NUMBERS, -0.1, 1.0]],
    *[("context_gradient", v) for v in ["rule", None, 1]],
    *[("num_rules", v) for v in [*NOT_SIZES, None]],
    *[("stages", v) for v in [*NOT_SIZES, None]],
    *[("rule_dim", v) for v in [*NOT_SIZES, None]],
    *[("key_dim", v) for v in [*NOT_SIZES, None]],
    *[("hidden_dim", v) for v in [*NOT_SIZES, None]],
    *[("selection_dim", v) for v in NOT_SIZES],
    *[("temperature", v) for v in [0, 0.0, -1, -1.0, INF, 1e-9, *NOT_NUMBERS]],
    *[("dropout", v) for v in [1.5, 1.0, 1, -0.1, INF, *NOT_NUMBERS]],
    *[("query", v) for v in ["cosine", "", "Linear", None, 3]],
    *[("context_query", v) for v in ["cosine", "", 3]],
    *[("rules", v) for v in ["conv", torch.nn.Linear(4, 4)]],
    *[("self_context", v) for v in ["yes"]],
]


@BOTH
@pytest.mark.parametrize(("name", "value"), WRONG, ids=lambda v: repr(v).split("\n")[0])
def test_wrong_layer_argument(kind, name, value):
    options = {"slot_dim": 4, "num_rules": 3, name: value}
    assert_refused(lambda: kind(**options), name)


@BOTH
@pytest.mark.parametrize(
    "rules",
    [MLPRules(2, 4), MLPRules(4, 4), MLPRules(3, 5), ConvRules(3, 2, hidden_dim=2)],
    ids=["too few", "too many", "other slot_dim", "other channels"],
)
def test_rules_of_the_wrong_size(kind, rules):
    assert_refused(lambda: kind(4, 3, rules=rules), "rules")


@pytest.mark.parametrize("rules", [MLPRules, ConvRules])
@pytest.mark.parametrize("name", ["num_rules", "slot_dim", "rule_dim", "hidden_dim"])
@pytest.mark.parametrize("value", [0, -1, 2.0, True, "8", None], ids=repr)
def test_wrong_rule_set_argument(rules, name, value):
    options = {"num_rules": 3, "slot_dim": 4, name: value}
    assert_refused(lambda: rules(**options), name)


@pytest.mark.parametrize("value", [0, 2, 4, -3, 3.0, True, "3"], ids=repr)
def test_wrong_kernel_size(value):
    assert_refused(lambda: ConvRules(3, 4, kernel_size=value), "kernel_size")


# -- the call --------------------------------------------------------------------------------------

SLOTS = torch.zeros(2, 3, 4)
MASK = torch.ones(2, 3, dtype=torch.bool)
WRONG_CALLS = {
    "last dim": ("slots", {"slots": torch.zeros(2, 3, 5)}),
    "too few dims": ("slots", {"slots": torch.zeros(4)}),
    "a number": ("slots", {"slots": torch.tensor(1.0)}),
    "integers": ("slots", {"slots": torch.zeros(2, 3, 4, dtype=torch.int64)}),
    "booleans": ("slots", {"slots": torch.zeros(2, 3, 4, dtype=torch.bool)}),
    "complex": ("slots", {"slots": torch.zeros(2, 3, 4, dtype=torch.complex64)}),
    "a list": ("slots", {"slots": SLOTS.tolist()}),
    "an array": ("slots", {"slots": SLOTS.numpy()}),
    "None": ("slots", {"slots": None}),
    "no slots": ("slots", {"slots": torch.zeros(2, 0, 4)}),
    "nan": ("slots", {"slots": with_value(SLOTS, NAN)}),
    "inf": ("slots", {"slots": with_value(SLOTS, INF)}),
    "-inf": ("slots", {"slots": with_value(SLOTS, -INF)}),
    "nan beside a mask": (
        "slots",
        {"slots": with_value(SLOTS, NAN), "slot_mask": torch.tensor([[False, True, True]] * 2)},
    ),
    "mask: one slot too many": ("slot_mask", {"slot_mask": torch.ones(2, 4, dtype=torch.bool)}),
    "mask: no batch": ("slot_mask", {"slot_mask": torch.ones(3, dtype=torch.bool)}),
    "mask: slot dim too": ("slot_mask", {"slot_mask": torch.ones(2, 3, 4, dtype=torch.bool)}),
    "mask: floats": ("slot_mask", {"slot_mask": MASK.float()}),
    "mask: integers": ("slot_mask", {"slot_mask": MASK.long()}),
    "mask: a list": ("slot_mask", {"slot_mask": MASK.tolist()}),
    "selection: other size": ("selection", {"selection": torch.zeros(2, 3, 5)}),
    "selection: other slots": ("selection", {"selection": torch.zeros(2, 2, 4)}),
    "selection: no batch": ("selection", {"selection": torch.zeros(3, 4)}),
    "selection: nan": ("selection", {"selection": with_value(SLOTS, NAN)}),
    "selection: inf": ("selection", {"selection": with_value(SLOTS, INF)}),
    "selection: a list": ("selection", {"selection": SLOTS.tolist()}),
    "selection: function of other size": ("selection", {"selection": lambda v: v[..., :3]}),
    "selection: function to nan": ("selection", {"selection": lambda v: v / 0}),
    "selection: function to a list": ("selection", {"selection": lambda v: v.tolist()}),
    "noise: no batch": ("noise", {"noise": torch.zeros(1, 12)}),
    "noise: empty": ("noise", {"noise": torch.zeros(0)}),
    "noise: shape of the slots": ("noise", {"noise": torch.zeros(2, 3, 4)}),
    "noise: a number": ("noise", {"noise": 7}),
}


@BOTH
@pytest.mark.parametrize("case", WRONG_CALLS)
def test_wrong_call_argument(kind, case):
    name, call = WRONG_CALLS[case]
    layer = kind(4, 3)
    assert_refused(lambda: layer(**{"slots": SLOTS, **call}), name)


@BOTH
def test_nan_in_half_precision(kind):
    layer = kind(4, 3).half()
    assert_refused(lambda: layer(with_value(SLOTS.half(), NAN)), "slots")


def test_numbers_are_finite_one_by_one():
    top = torch.finfo(torch.float32).max
    require_finite("slots", torch.tensor([top, top, -top]))  # an infinite sum of finite numbers
    with pytest.raises(ValueError, match=r"slots: got inf at index \(0,\)"):
        require_finite("slots", torch.tensor([INF, -INF, 1.0]))


@BOTH
def test_the_right_call_is_not_refused(kind):
    # Guards the tests above: what they change is what is wrong.
    layer = kind(4, 3)
    noise = torch.rand(layer.noise_shape(2, slots=3))
    new = layer(SLOTS, slot_mask=MASK, selection=torch.zeros(2, 3, 4), noise=noise)
    assert new.shape == SLOTS.shape


@BOTH
@pytest.mark.parametrize("shape", [(2, 3, 5, 6, 6), (3, 6, 6), (4, 6), (2, 0, 3, 6, 6)], ids=str)
def test_wrong_feature_maps(kind, shape):
    layer = kind(3, 2, rules=ConvRules(2, 3, hidden_dim=2))
    assert layer(torch.zeros(2, 4, 3, 6, 6)).shape == (2, 4, 3, 6, 6)
    assert_refused(lambda: layer(torch.zeros(shape)), "slots")


def test_the_message_says_what_came_and_what_was_expected():
    layer = SequentialNPS(4, 3)
    with pytest.raises(ValueError, match=r"slots: got shape \(2, 3, 5\), expected .* D = 4"):
        layer(torch.zeros(2, 3, 5))
    with pytest.raises(ValueError, match=r"slots: got nan at index \(0, 2, 0\)"):
        layer(with_value(SLOTS, NAN))


# -- rule sets -------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["remove", "freeze", "unfreeze", "disabled", "copy_from"])
@pytest.mark.parametrize("index", [3, -4, 100, 1.0, True, "0", "", None], ids=repr)
def test_wrong_rule(operation, index):
    rules = MLPRules(3, 4)

    def call():
        if operation == "copy_from":
            rules.copy_from(MLPRules(3, 4), index)
        elif operation == "disabled":
            with rules.disabled(index):
                pass
        else:
            getattr(rules, operation)(index)

    assert_refused(call, "rule")
    assert len(rules) == 3
    assert rules.frozen == []


@pytest.mark.parametrize("to", [3, -4, 1.0], ids=repr)
def test_wrong_target_of_a_copy(to):
    rules = MLPRules(3, 4)
    assert_refused(lambda: rules.copy_from(MLPRules(3, 4), 0, to=to), "rule")


@pytest.mark.parametrize("n", [0, -1, 1.0, True, None], ids=repr)
def test_wrong_number_of_rules_to_add(n):
    assert_refused(lambda: MLPRules(3, 4).add(n), "n")


def test_the_last_rule_cannot_be_removed():
    rules = MLPRules(2, 4)
    rules.remove(0)
    assert_refused(lambda: rules.remove(0), "remove")
    assert len(rules) == 1


@pytest.mark.parametrize(
    "other",
    [
        MLPRules(3, 5),
        MLPRules(3, 4, hidden_dim=7),
        MLPRules(3, 4, rule_dim=7),
        ConvRules(3, 4, hidden_dim=128),
        torch.nn.Linear(4, 4),
    ],
    ids=["slot_dim", "hidden_dim", "rule_dim", "convolutional", "no rule set"],
)
def test_copy_from_another_shape(other):
    rules = MLPRules(3, 4)
    before = {name: p.clone() for name, p in rules.named_parameters()}
    assert_refused(lambda: rules.copy_from(other, 1), "other")
    assert all(torch.equal(p, before[name]) for name, p in rules.named_parameters())


def test_copy_from_rules_without_a_bid():
    # Algorithm 2's rules have a share in the joint bid that Algorithm 1's lack.
    assert_refused(lambda: ParallelNPS(4, 3).rules.copy_from(SequentialNPS(4, 3).rules, 1), "other")
