"""The authors' rule layer against their steps written out in loops, and how it starts."""

import pytest
import torch

from nps.models.digits import IMAGE, DigitTransformation
from nps.models.digits_authors import AuthorsNPS, OperationMLP
from nps.rules import RuleConfig

D, N = 24, 4


def make(seed: int = 0, **settings: object) -> AuthorsNPS:
    torch.manual_seed(seed)
    return AuthorsNPS(D, N, **{"rule_dim": 6, "hidden_dim": 16, **settings})


def slots_of(count: int = 40, seed: int = 1) -> torch.Tensor:
    return 2.0 * torch.randn(count, 2, D, generator=torch.Generator().manual_seed(seed))


def written_out(layer: AuthorsNPS, pair: torch.Tensor, noise: list[list[float]]):
    """One example: two slots, and the noise of its N·2 pairs and its 2 slots."""
    w, of_pairs, of_slots = layer.state_dict(), *noise

    def score(query: torch.Tensor, step: str, j: int, size: int) -> float:
        key = w[f"{step}.key.bias"][j].clone()
        for d in range(D):
            key += pair[j, d] * w[f"{step}.key.weight"][j, d]
        return float(sum(q * k for q, k in zip(query, key, strict=True))) / size**0.5

    # Step 2: a query of each rule, keys of the slots; the best of all pairs.
    best, chosen = -1e9, (0, 0)
    for i in range(N):
        embedding = w["rules.embedding"][i]
        query = w["select_slots.query.weight"] @ embedding + w["select_slots.query.bias"]
        for j in range(2):
            found = score(query, "select_slots", j, 32) + of_pairs[j * N + i]
            if found > best:
                best, chosen = found, (j, i)
    selecting, rule = chosen
    # Step 3: the embedding of that rule asks for the slot that its MLP reads.
    embedding = w["rules.embedding"][rule]
    query = embedding @ w["bind_slots.query.weight"][0] + w["bind_slots.query.bias"][0]
    fit = [score(query, "bind_slots", j, 16) + of_slots[j] for j in range(2)]
    operand = int(fit[1] > fit[0])
    # Step 4: what the MLP makes of the slot replaces it; the other half of its input is empty.
    hidden = pair[operand] @ w["rules.weight_in"][rule, :D] + w["rules.bias_in"][rule]
    result = hidden.clamp(min=0.0) @ w["rules.weight_out"][rule] + w["rules.bias_out"][rule]
    return selecting, rule, operand, result


@pytest.mark.parametrize("training", [False, True])
def test_the_program_written_out(training):
    layer, slots = make().train(training), slots_of()
    uniform = torch.rand(40, 1, N * 2 + 2, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        new, trace = layer(slots, noise=uniform, return_trace=True)
    gumbel = -(-uniform[:, 0].double().log()).log() if training else torch.zeros(40, N * 2 + 2)
    seen = set()
    for e, pair in enumerate(slots):
        noise = [part.tolist() for part in gumbel[e].split([N * 2, 2])]
        selecting, rule, operand, result = written_out(layer, pair, noise)
        torch.testing.assert_close(new[e], result, atol=1e-5, rtol=1e-5)
        assert trace.rule[e, 0].tolist() == [rule if m == operand else -1 for m in range(2)]
        assert trace.context[e, 0].tolist() == [selecting if m == operand else -1 for m in range(2)]
        seen.add((selecting, operand))
    assert len(seen) == 4  # all roles have occurred


def test_the_gradient_is_that_of_the_masks():
    """Rules and slots weighted by soft choices, at τ = 1 and τ = 0.5, in place of the hard ones."""
    layer, pair = make().train(), slots_of(1).requires_grad_()
    uniform = torch.rand(1, 1, N * 2 + 2, generator=torch.Generator().manual_seed(2))
    layer(pair, noise=uniform).square().sum().backward()
    found = {name: p.grad.clone() for name, p in layer.named_parameters()} | {"slots": pair.grad}
    layer.zero_grad()
    pair = pair.detach().requires_grad_()
    of_pairs, of_slots = (-(-uniform[0, 0].log()).log()).split([N * 2, 2])
    w = dict(layer.named_parameters())

    def hard(scores: torch.Tensor, temperature: float) -> torch.Tensor:
        soft = torch.softmax(scores / temperature, -1)
        return torch.eye(len(scores))[scores.argmax()] - soft.detach() + soft

    def key(step: str) -> torch.Tensor:
        each = [pair[0, j] @ w[f"{step}.key.weight"][j] + w[f"{step}.key.bias"][j] for j in (0, 1)]
        return torch.stack(each)

    query = w["rules.embedding"] @ w["select_slots.query.weight"].T + w["select_slots.query.bias"]
    scores = (key("select_slots") @ query.T / 32**0.5).flatten() + of_pairs
    rule = hard(scores, 1.0).view(2, N).sum(0)
    asks = (rule @ w["rules.embedding"]) @ w["bind_slots.query.weight"][0]
    scores = key("bind_slots") @ (asks + w["bind_slots.query.bias"][0]) / 16**0.5
    slot = hard(scores + of_slots, 0.5) @ pair[0]
    result = torch.zeros(D)
    for i in range(N):
        hidden = (slot @ w["rules.weight_in"][i, :D] + w["rules.bias_in"][i]).relu()
        result = result + rule[i] * (hidden @ w["rules.weight_out"][i] + w["rules.bias_out"][i])
    result.square().sum().backward()
    expected = {name: p.grad for name, p in layer.named_parameters()} | {"slots": pair.grad}
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, atol=1e-4, rtol=1e-3, msg=name)


def test_only_the_rule_of_step_two_counts():
    """The slot of the pair that wins changes nothing: any pair with the same rule does the same."""
    layer, slots = make().eval(), slots_of(200)
    with torch.no_grad():
        new, trace = layer(slots, return_trace=True)
        selecting = trace.context.amax((1, 2))
        layer.select_slots.key.bias[1] -= 1e3 * layer.select_slots.key.bias[1].sign()
        other, again = layer(slots, return_trace=True)
    same = trace.rule.amax((1, 2)) == again.rule.amax((1, 2))
    moved = same & (selecting != again.context.amax((1, 2)))
    assert moved.sum() > 5
    torch.testing.assert_close(other[same], new[same])


def test_it_starts_as_the_program_does():
    """Uniform with bounds by the number of outputs; only the query of step 2 is torch's own."""
    layer = make(hidden_dim=128)
    bounds = {
        "select_slots.query.weight": 6**-0.5,
        "select_slots.query.bias": 6**-0.5,
        "select_slots.key.weight": 32**-0.5,
        "bind_slots.query.weight": 0.25,
        "bind_slots.query.bias": 0.25,
        "bind_slots.key.weight": 0.25,
        "rules.weight_in": 128**-0.5,
        "rules.bias_in": 128**-0.5,
        "rules.weight_out": D**-0.5,
        "rules.bias_out": D**-0.5,
    }
    for name, bound in bounds.items():
        highest = layer.state_dict()[name].abs().max().item()
        assert 0.7 * bound < highest <= bound, name
    before = {name: p.clone() for name, p in layer.named_parameters()}
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
    torch.manual_seed(0)
    layer.reset_parameters()
    assert all(torch.equal(p, before[name]) for name, p in layer.named_parameters())


def test_as_many_parameters_learn_as_in_the_program():
    """846,865 have a gradient there: the rules' unused second inputs are not among them."""
    torch.manual_seed(0)
    layer = AuthorsNPS(100, 4, rule_dim=6)
    model = DigitTransformation(layer, 100, OperationMLP(4, 100)).train()
    images = torch.rand(8, 64, 64, generator=torch.Generator().manual_seed(1))
    noise = torch.rand(layer.noise_shape(8, slots=2), generator=torch.Generator().manual_seed(0))
    model(images, torch.arange(8) % 4, noise=noise).square().mean().backward()
    assert not layer.rules.weight_in.grad[:, 100:].any()
    unused = layer.rules.weight_in.grad[:, 100:].numel()
    assert sum(p.numel() for p in model.parameters() if p.grad.any()) - unused == 846_865


def test_every_operation_has_a_slot_by_the_mlp():
    torch.manual_seed(0)
    encode = OperationMLP(4, D)
    first, _, last = encode.net
    for o in range(4):
        hidden = (first.weight[:, o] + first.bias).relu()
        torch.testing.assert_close(
            encode(torch.tensor([o]))[0], last.weight @ hidden + last.bias, atol=1e-6, rtol=1e-5
        )
    model = DigitTransformation(make(), D, encode)
    with pytest.raises(ValueError, match="add_operation: the operations of this model are not"):
        model.add_operation()


def test_a_rule_by_hand_is_the_rule_that_fired():
    torch.manual_seed(0)
    model = DigitTransformation(make(), D, OperationMLP(4, D)).eval()
    images = torch.rand(20, 64, 64, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        slot = model.encode(images)
        stepped, trace = model.step(slot, torch.arange(20) % 4, return_trace=True)
        on_image = trace.rule[:, 0, IMAGE] >= 0
        assert on_image.any()
        for i in set(trace.rule[on_image, 0, IMAGE].tolist()):
            here = trace.rule[:, 0, IMAGE] == i
            torch.testing.assert_close(model.act(slot, i)[here], stepped[here])


def test_disabled_and_removed_rules_do_not_fire():
    layer, slots = make().eval(), slots_of()
    with torch.no_grad():
        new, trace = layer(slots, return_trace=True)
        winner = int(trace.rule.amax((1, 2)).bincount().argmax())
        with layer.rules.disabled(winner):
            _, without = layer(slots, return_trace=True)
        layer.rules.remove(winner)
        left, _ = layer(slots, return_trace=True)
    assert not (without.rule == winner).any()
    others = trace.rule.amax((1, 2)) != winner
    assert 0 < others.sum() < 40
    assert torch.equal(left[others], new[others])


def test_from_config_and_what_it_refuses():
    config = RuleConfig(N, rule_dim=6, hidden_dim=16, dropout=0.3, query="mlp")
    torch.manual_seed(0)
    built = AuthorsNPS.from_config(config, D, slots=2)
    uniform = torch.rand(40, 1, N * 2 + 2)
    assert torch.equal(built(slots_of(), noise=uniform), make()(slots_of(), noise=uniform))
    with pytest.raises(ValueError, match="dropout: AuthorsNPS has no such setting"):
        make(dropout=0.3)
    with pytest.raises(ValueError, match="slots: got 3 slots, expected 2, a map for each"):
        built(torch.randn(5, 3, D))
    with pytest.raises(ValueError, match="slot_mask is not supported"):
        built(slots_of(), slot_mask=torch.ones(40, 2, dtype=torch.bool))
