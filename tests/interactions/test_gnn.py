"""C-SWM's transition against a loop over pairs, and the laws it shares with the rule layers."""

import copy

import pytest
import torch
from torch.func import functional_call, stack_module_state, vmap

from nps.interactions import GNN

LEAN = pytest.mark.parametrize("lean", [True, False], ids=["lean", "per-edge"])


@pytest.fixture(autouse=True)
def _fresh_compiler():
    yield
    torch._dynamo.reset()


def make(lean=True, seed=0, action_dim=0):
    torch.manual_seed(seed)
    gnn = GNN(6, hidden_dim=16, action_dim=action_dim, lean=lean)
    for p in gnn.parameters():  # the LayerNorms too, else a lost scale or shift would not show
        torch.nn.init.normal_(p, std=0.5)
    return gnn


def plain(gnn, slots, action=None):
    """The formula, slot by slot: one graph, no batch."""

    def mlp(layers, x):
        first, _, middle, norm, _, last = layers
        x = (first.weight @ x + first.bias).clamp(min=0)
        x = middle.weight @ x + middle.bias
        x = (x - x.mean()) / (x.var(correction=0) + norm.eps).sqrt() * norm.weight + norm.bias
        return last.weight @ x.clamp(min=0) + last.bias

    new = []
    for i in range(len(slots)):
        message = torch.zeros(gnn.hidden_dim)
        for j in range(len(slots)):
            if j != i:
                message = message + mlp(gnn.edge, torch.cat([slots[i], slots[j]]))
        own = [slots[i]] if action is None else [slots[i], action[i]]
        new.append(slots[i] + mlp(gnn.node, torch.cat([*own, message])))
    return torch.stack(new)


def gradients(out, gnn, slots):
    weights = torch.linspace(-1, 1, out.numel()).reshape(out.shape)
    return torch.autograd.grad((out * weights).sum(), [slots, *gnn.parameters()])


@LEAN
@pytest.mark.parametrize("action_dim", [0, 3])
@pytest.mark.parametrize("m", [1, 2, 5])
def test_equals_the_loop_over_pairs(lean, action_dim, m):
    gnn = make(lean, action_dim=action_dim)
    slots = torch.randn(4, m, 6, requires_grad=True)
    action = torch.randn(4, m, action_dim) if action_dim else None
    new = gnn(slots, action)
    expected = torch.stack(
        [plain(gnn, slots[b], None if action is None else action[b]) for b in range(4)]
    )
    torch.testing.assert_close(new, expected)
    if m > 1:  # the loop over no pairs leaves the edge network without a gradient
        pairs = zip(gradients(new, gnn, slots), gradients(expected, gnn, slots), strict=True)
        for grad, its_grad in pairs:
            torch.testing.assert_close(grad, its_grad, rtol=1e-3, atol=1e-4)


@LEAN
def test_a_single_slot_hears_nothing(lean):
    gnn = make(lean)
    slots = torch.randn(3, 1, 6)
    expected = slots + gnn.node(torch.cat([slots, torch.zeros(3, 1, 16)], -1))
    torch.testing.assert_close(gnn(slots), expected)
    grads = torch.autograd.grad(gnn(slots).sum(), list(gnn.parameters()))
    assert all(torch.isfinite(grad).all() for grad in grads)


@pytest.mark.parametrize("lead", [(), (1,), (5,), (2, 3), (0,)])
def test_leading_dimensions(lead):
    gnn = make(action_dim=2)
    slots, action = torch.randn(*lead, 4, 6), torch.randn(*lead, 4, 2)
    new = gnn(slots, action)
    assert new.shape == slots.shape
    flat = gnn(slots.reshape(-1, 4, 6), action.reshape(-1, 4, 2))
    torch.testing.assert_close(new.reshape(-1, 4, 6), flat)


@LEAN
def test_equivariant_to_the_order_of_slots(lean):
    gnn = make(lean)
    slots, order = torch.randn(8, 5, 6), torch.tensor([3, 0, 4, 1, 2])
    torch.testing.assert_close(gnn(slots[:, order]), gnn(slots)[:, order])


def test_parameters_are_those_of_c_swm():
    def count(gnn):
        return sum(p.numel() for p in gnn.parameters())

    assert count(GNN(64, action_dim=25)) == 1_197_120  # 1.20 M
    assert round(count(GNN(2, action_dim=4)) / 1e6, 2) == 1.06
    assert GNN(64, lean=False).state_dict().keys() == GNN(64).state_dict().keys()


@LEAN
def test_compiled_equals_eager(lean):
    gnn = make(lean, action_dim=3)
    slots, action = torch.randn(8, 5, 6, requires_grad=True), torch.randn(8, 5, 3)
    compiled = torch.compile(gnn, fullgraph=True, backend="aot_eager")
    new, expected = compiled(slots, action), gnn(slots, action)
    torch.testing.assert_close(new, expected)
    pairs = zip(gradients(new, gnn, slots), gradients(expected, gnn, slots), strict=True)
    for grad, its_grad in pairs:
        torch.testing.assert_close(grad, its_grad, rtol=1e-4, atol=1e-5)


@LEAN
def test_stacked_models_equal_the_loop_over_them(lean):
    models = [make(lean, seed) for seed in range(3)]
    slots = torch.randn(3, 7, 5, 6)
    params, buffers = stack_module_state(models)
    base = copy.deepcopy(models[0]).to("meta")
    new = vmap(lambda p, b, s: functional_call(base, (p, b), (s,)))(params, buffers, slots)
    for s, model in enumerate(models):
        torch.testing.assert_close(new[s], model(slots[s]))


@pytest.mark.parametrize("name", ["slot_dim", "hidden_dim", "action_dim"])
@pytest.mark.parametrize("value", [-1, 2.0, True, "8", None], ids=repr)
def test_wrong_constructor_argument(name, value):
    with pytest.raises(ValueError, match=name):
        GNN(**{"slot_dim": 6, name: value})


NAN = torch.full((2, 3, 6), torch.nan)
ACTION = torch.zeros(2, 3, 4)


@pytest.mark.parametrize(
    ("slots", "action", "message"),
    [
        ([1.0], ACTION, "slots: got list, expected a floating point tensor"),
        (torch.zeros(2, 3, 6, dtype=torch.int), ACTION, "slots: got torch.int32"),
        (torch.zeros(2, 3, 5), ACTION, "slots: got shape (2, 3, 5), expected (..., M, D)"),
        (torch.zeros(6), ACTION, "slots: got shape (6,)"),
        (torch.zeros(2, 0, 6), ACTION, "expected at least one slot"),
        (NAN, ACTION, "slots: got nan at index (0, 0, 0)"),
        (torch.zeros(2, 3, 6), None, "action: got None, expected (..., M, 4)"),
        (torch.zeros(2, 3, 6), 3, "action: got 3, expected a tensor"),
        (torch.zeros(2, 3, 6), ACTION[:1], "action: got shape (1, 3, 4), expected (2, 3, 4)"),
        (torch.zeros(2, 3, 6), ACTION.double(), "action: got torch.float64"),
        (torch.zeros(2, 3, 6), ACTION / 0, "action: got nan"),
    ],
)
def test_wrong_input_is_one_line(slots, action, message):
    with pytest.raises(ValueError) as caught:
        make(action_dim=4)(slots, action)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_action_nobody_reads_is_refused():
    with pytest.raises(ValueError, match="expected none"):
        make()(torch.zeros(2, 3, 6), torch.zeros(2, 3, 0))
