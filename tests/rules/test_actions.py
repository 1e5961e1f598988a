"""The two forms of the chosen action in training, against the formula written out."""

import pytest
import torch
from torch import Tensor

from nps.rules import MLPRules
from nps.rules.apply import MANY_ROWS
from nps.rules.chosen import ByRule, masked

FORMS = {"masked": masked, "by rule": ByRule.apply}


def written_out(x, choice, weight_in, bias_in, weight_out, bias_out):
    """Σ_i choice_i · (relu(x W_i + b_i) W'_i + b'_i), one rule after the other."""
    out = torch.zeros(len(x), weight_out.shape[-1], dtype=x.dtype)
    for i in range(len(weight_in)):
        action = (x @ weight_in[i] + bias_in[i]).relu() @ weight_out[i] + bias_out[i]
        out = out + choice[:, i, None] * action
    return out


def inputs(rows: int, n: int, rules: Tensor | None = None) -> list[Tensor]:
    """Slots of size 3, hidden 5; where a rule is -1 none was chosen."""
    torch.manual_seed(rows + n)
    rules = torch.randint(-1, n, (rows,)) if rules is None else rules
    choice = torch.nn.functional.one_hot(rules.clamp(min=0), n) * (rules >= 0).unsqueeze(-1)
    shapes = [(n, 6, 5), (n, 5), (n, 5, 3), (n, 3)]
    tensors = [torch.randn(rows, 6), choice, *map(torch.randn, shapes)]
    return [t.double().requires_grad_() for t in tensors]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rows", [1, 2, 17, 200])
@pytest.mark.parametrize("n", [1, 2, 7, 64])
def test_values_and_gradients(form, rows, n):
    """To every input, the choice of every rule included."""
    given = inputs(rows, n)
    g = torch.randn(rows, 3, dtype=torch.float64)
    ours, theirs = FORMS[form](*given), written_out(*given)
    torch.testing.assert_close(ours, theirs)
    grads = torch.autograd.grad(ours, given, g), torch.autograd.grad(theirs, given, g)
    for mine, wanted in zip(*grads, strict=True):
        torch.testing.assert_close(mine, wanted)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rule", [-1, 2])
def test_all_rows_alike(form, rule):
    given = inputs(9, 4, torch.full((9,), rule))
    ours = FORMS[form](*given)
    torch.testing.assert_close(ours, written_out(*given))
    to_weights = torch.autograd.grad(ours.sum(), given[2:], materialize_grads=True)
    for gradient in to_weights:
        others = [i for i in range(4) if i != rule]
        assert gradient[others].abs().max() == 0
        assert rule < 0 or gradient[rule].abs().max() > 0


def test_the_gradient_to_the_input_may_be_left_out():
    given = inputs(9, 4)
    given[0] = given[0].detach()
    ByRule.apply(*given).sum().backward()
    assert given[0].grad is None
    assert given[2].grad is not None


def test_second_derivatives_by_rule_are_refused():
    given = inputs(9, 4)
    loss = ByRule.apply(*given).square().sum()
    (gradient,) = torch.autograd.grad(loss, given[1], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


@pytest.mark.parametrize("rows", [MANY_ROWS - 1, MANY_ROWS])
def test_rule_sets_give_the_same_on_both_sides_of_the_threshold(rows):
    torch.manual_seed(0)
    rules = MLPRules(5, 3, hidden_dim=8).double()
    primary, context = torch.randn(2, rows, 3, dtype=torch.float64).requires_grad_()
    choice = torch.nn.functional.one_hot(torch.randint(5, (rows,)), 5).double().requires_grad_()
    weights = [rules.weight_in, rules.bias_in, rules.weight_out, rules.bias_out]
    x = torch.cat([primary, context], -1)
    ours, theirs = rules(primary, context, choice), written_out(x, choice, *weights)
    torch.testing.assert_close(ours, theirs)
    name = ours.grad_fn.name() if ours.grad_fn else ""
    assert ("ByRule" in name) == (rows == MANY_ROWS)
    wanted = [primary, context, choice, *weights]
    for mine, other in zip(
        torch.autograd.grad(ours.sum(), wanted, retain_graph=True),
        torch.autograd.grad(theirs.sum(), wanted),
        strict=True,
    ):
        torch.testing.assert_close(mine, other)


def kept_bytes(function, given) -> int:
    """What a forward pass keeps for its backward pass, inputs left out."""
    own = {tensor.untyped_storage().data_ptr() for tensor in given}
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        out = function(*given)
    del out
    return sum(kept.values())


def test_by_rule_keeps_less():
    """All outputs and the chosen hidden layers, not the hidden layers of all 64 rules."""
    given = inputs(400, 64)
    rows, n, hidden, size = 400, 64, 5, 3
    bytes_by_rule = kept_bytes(ByRule.apply, given)
    assert bytes_by_rule <= 8 * rows * (n * size + hidden)
    assert bytes_by_rule < 0.5 * kept_bytes(masked, given)
