"""The roles of the slots, and surgery on rules that leaves the other operations as they were."""

import pytest
import torch

from nps.models.digits import IMAGE, OPERATION, DigitTransformation, OneMLP, OperandNPS
from nps.rules import MLPRules, RuleConfig

D = 24


def make(rules: int = 4, operations: int = 4, seed: int = 0) -> DigitTransformation:
    torch.manual_seed(seed)
    return DigitTransformation(
        OperandNPS(D, rules, rule_dim=3, hidden_dim=16), D, operations
    ).eval()


def obedient(model: DigitTransformation) -> DigitTransformation:
    """Choices set by hand: operation o selects rule o, and every rule is for the image."""
    layer, sharp = model.layer, 20.0
    with torch.no_grad():
        for parameter in (*layer.select.parameters(), *layer.bind.parameters()):
            parameter.zero_()
        model.operations.weight.zero_()
        layer.rules.embedding.zero_()
        for i in range(3):
            layer.select.query.out.weight[i, i] = layer.select.key.out.weight[i, i] = 1.0
        # Corners of a tetrahedron: each operation is nearest to the rule of its own number.
        corners = sharp * torch.tensor([[1.0, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]])
        model.operations.weight[:, :3] = layer.rules.embedding[:] = corners
        # Operations have a mark of their own, by which step 3 turns away from them.
        model.operations.weight[:, 3] = layer.bind.query.out.weight[0, 3] = sharp
        layer.bind.key.out.weight[0, 3] = -1.0
    return model


def images(count: int = 30) -> torch.Tensor:
    return torch.rand(count, 64, 64, generator=torch.Generator().manual_seed(1))


def every_operation(count: int = 30, operations: int = 4) -> torch.Tensor:
    return torch.arange(count) % operations


def test_a_plain_loop_over_the_appendix():
    """Steps 2 to 4 written out for one example at a time."""
    torch.manual_seed(3)
    layer = OperandNPS(D, 4, rule_dim=3, hidden_dim=16).eval()
    layer.requires_grad_(False)
    slots = 2.0 * torch.randn(40, 2, D)
    with torch.no_grad():
        new, trace = layer(slots, return_trace=True)
    rules = layer.rules
    assert isinstance(rules, MLPRules)
    w_query, w_key = layer.select.query.out.weight, layer.select.key.out.weight
    b_query, b_key = layer.bind.query.out.weight, layer.bind.key.out.weight
    seen = set()
    for e, (image, operation) in enumerate(slots):
        pair = (image, operation)
        score = {
            (j, i): float((w_query @ pair[j]) @ (w_key @ rules.embedding[i]))
            for j in range(2)
            for i in range(4)
        }
        selecting, rule = max(score, key=score.__getitem__)
        fit = [float((b_query @ pair[selecting]) @ (b_key @ slot)) for slot in pair]
        operand = int(fit[1] > fit[0])
        x = torch.cat([pair[operand], torch.zeros(D)])
        hidden = (x @ rules.weight_in[rule] + rules.bias_in[rule]).relu()
        expected = pair[operand] + hidden @ rules.weight_out[rule] + rules.bias_out[rule]
        torch.testing.assert_close(new[e], expected, atol=1e-5, rtol=1e-5)
        assert trace.rule[e, 0].tolist() == [rule if m == operand else -1 for m in range(2)]
        assert trace.context[e, 0].tolist() == [selecting if m == operand else -1 for m in range(2)]
        seen.add((selecting, operand))
    assert len(seen) == 4  # all roles have occurred


def test_the_result_is_no_slot_and_knows_no_mask():
    layer = OperandNPS(D, 4)
    assert layer(torch.randn(3, 5, 2, D)).shape == (3, 5, D)
    with pytest.raises(ValueError, match="slot_mask is not supported by OperandNPS"):
        layer(torch.randn(3, 2, D), slot_mask=torch.ones(3, 2, dtype=torch.bool))


def test_from_config_is_the_constructor():
    config = RuleConfig(4, rule_dim=3, hidden_dim=16, temperature=0.5, self_context=False)
    torch.manual_seed(0)
    made = OperandNPS.from_config(config, D, selecting_slot=OPERATION)
    torch.manual_seed(0)
    sizes = {"rule_dim": 3, "hidden_dim": 16, "temperature": 0.5, "self_context": False}
    expected = OperandNPS(D, 4, selecting_slot=OPERATION, **sizes)
    slots, noise = torch.randn(9, 2, D), torch.rand(made.noise_shape(9, slots=2))
    assert torch.equal(made(slots, noise=noise), expected(slots, noise=noise))
    with pytest.raises(ValueError, match="stages: got 2, expected 1"):
        OperandNPS.from_config(RuleConfig(4, stages=2), D)


def test_without_self_context_the_other_slot_is_changed():
    torch.manual_seed(3)
    layer = OperandNPS(D, 4, self_context=False)
    for mode in (layer.train(), layer.eval()):
        _, trace = mode(2.0 * torch.randn(40, 2, D), return_trace=True)
        changed = trace.rule[:, 0].argmax(-1)
        selecting = trace.context[:, 0].amax(-1)
        assert torch.equal(selecting, 1 - changed)
        assert set(selecting.tolist()) == {0, 1}


def test_only_the_selecting_slot_selects():
    torch.manual_seed(4)
    free, layer = OperandNPS(D, 4), OperandNPS(D, 4, selecting_slot=OPERATION)
    layer.load_state_dict(free.state_dict())
    slots = 2.0 * torch.randn(40, 2, D)
    noise = torch.rand(layer.noise_shape(40, slots=2))
    result, trace = layer(slots, noise=noise, return_trace=True)
    assert (trace.context.amax(-1) == OPERATION).all()
    assert (trace.rule_scores[..., IMAGE, :] == -torch.inf).all()
    assert torch.isfinite(trace.rule_scores[..., OPERATION, :]).all()
    # Where the operation slot would select anyway, nothing differs.
    other, freely = free(slots, noise=noise, return_trace=True)
    same = freely.context.amax((-2, -1)) == OPERATION
    assert 0 < same.sum() < 40
    assert torch.equal(result[same], other[same])
    assert not torch.equal(result[~same], other[~same])


def test_the_operation_asks_and_the_image_changes():
    model = obedient(make())
    operation = every_operation()
    with torch.no_grad():
        _, trace = model(images(), operation, return_trace=True)
    assert torch.equal(trace.rule[:, 0, IMAGE], operation)
    assert (trace.rule[:, 0, OPERATION] == -1).all()
    assert (trace.context[:, 0, IMAGE] == OPERATION).all()


def test_a_rule_never_sees_the_operation():
    """With the same rule chosen, what it does to an image is the same whoever asked."""
    model = obedient(make())
    with torch.no_grad():
        before = model(images(), torch.zeros(30, dtype=torch.long))
        model.operations.weight[0, 4:] += 1.0  # nothing that the choices look at
        after, trace = model(images(), torch.zeros(30, dtype=torch.long), return_trace=True)
    assert (trace.rule[:, 0, IMAGE] == 0).all()
    assert torch.equal(before, after)


def test_gradients_reach_operations_conditions_and_choices():
    model = make().train()
    model(images(), every_operation(), noise=torch.Generator().manual_seed(0)).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_a_rule_by_hand_is_the_rule_that_fired():
    model = obedient(make())
    with torch.no_grad():
        for o in range(4):
            operation = torch.full((30,), o)
            logits, trace = model(images(), operation, return_trace=True)
            assert (trace.rule[:, 0, IMAGE] == o).all()
            slot = model.act(model.encode(images()), o)
            assert torch.equal(model.decode(slot), logits.sigmoid())
            assert torch.equal(slot, model.step(model.encode(images()), operation))


def test_rules_by_hand_must_exist():
    slot = torch.zeros(2, D)
    with pytest.raises(ValueError, match="rule: got 4, expected 0 to 3"):
        make().act(slot, 4)
    with pytest.raises(ValueError, match="no rules to apply"):
        DigitTransformation(OneMLP(D, 64), D, 4).act(slot, 0)


@pytest.mark.parametrize("removed", range(4))
def test_removing_a_rule_leaves_the_other_operations_bit_for_bit(removed):
    model = obedient(make())
    operation = every_operation()
    with torch.no_grad():
        before = model(images(), operation)
        model.layer.rules.remove(removed)
        after = model(images(), operation)
    others = operation != removed
    assert torch.equal(after[others], before[others])
    assert not torch.equal(after[~others], before[~others])


def test_an_added_rule_begins_outside_and_changes_nothing():
    model = obedient(make())
    with torch.no_grad():
        before = model(images(), every_operation())
        model.freeze()
        model.add_operation()
        assert torch.equal(model(images(), every_operation()), before)
        model(images(), every_operation(operations=5))  # the fifth can be asked for
    assert len(model.layer.rules) == 5
    learns = {name for name, p in model.named_parameters() if p.requires_grad}
    rules = {f"layer.rules.{n}" for n in ("weight_in", "bias_in", "weight_out", "bias_out")}
    assert learns == rules | {"layer.rules.embedding", "operations.added"}


def test_only_what_was_added_learns():
    model = make()
    model.freeze()
    model.add_operation()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.train()
    adam = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.1)
    for seed in range(3):
        noise = torch.Generator().manual_seed(seed)
        model(images(), every_operation(operations=5), noise=noise).square().mean().backward()
        adam.step()
        adam.zero_grad()
    after = model.state_dict()
    for name, tensor in before.items():
        if name.startswith("layer.rules.") and "extra" not in name:
            assert torch.equal(tensor[:4], after[name][:4]), name
            assert not torch.equal(tensor[4:], after[name][4:]), name
        else:
            assert torch.equal(tensor, after[name]) == (name != "operations.added"), name


def test_the_model_without_rules_reads_both_slots():
    torch.manual_seed(0)
    model = DigitTransformation(OneMLP(D, 64), D, 4).eval()
    with torch.no_grad():
        logits, trace = model(images(), every_operation(), return_trace=True)
        other = model(images(), every_operation().flip(0))
    assert torch.equal(trace.rule, torch.tensor([0, -1]).expand(30, 1, 2))
    assert torch.equal(trace.context, torch.tensor([OPERATION, -1]).expand(30, 1, 2))
    assert trace.rule_scores.shape == (30, 1, 2, 1)
    assert trace.context_scores.shape == (30, 1, 2, 2)
    assert not torch.equal(logits, other)


@pytest.mark.parametrize("selecting_slot", [None, OPERATION])
@pytest.mark.parametrize("self_context", [True, False])
@pytest.mark.parametrize("disabled", [(), (2,)])
@torch.no_grad()
def test_every_result_equals_a_loop_over_the_choices(selecting_slot, self_context, disabled):
    torch.manual_seed(1)
    options = {"selecting_slot": selecting_slot, "self_context": self_context}
    layer = OperandNPS(D, 3, rule_dim=3, hidden_dim=8, **options)
    slots = 2.0 * torch.randn(5, 2, D)
    with layer.rules.disabled(*disabled):
        log_prior, results = layer.every_result(slots)
        new, trace = layer.eval()(slots, return_trace=True)
    only_image = selecting_slot is not None and not self_context
    operands = [IMAGE] if only_image else [IMAGE, OPERATION]
    assert results.shape == (5, 3, len(operands), D)
    for e in range(5):
        scores, contexts = (
            layer.select(slots[e], layer.rules.embedding),
            layer.bind(*[slots[e]] * 2),
        )
        weights = {
            (s, r): scores[s, r].exp()
            for s in range(2)
            for r in range(3)
            if selecting_slot in (None, s) and r not in disabled
        }
        prior = torch.zeros(3, 2)
        for (s, r), weight in weights.items():
            allowed = [p for p in range(2) if self_context or p != s]
            for p in allowed:
                share = contexts[s, p].exp() / sum(contexts[s, other].exp() for other in allowed)
                prior[r, p] += weight / sum(weights.values()) * share
        torch.testing.assert_close(log_prior[e].exp(), prior[:, operands])
        for r in range(3):
            for k, p in enumerate(operands):
                expected = layer.result(slots[e, p], torch.eye(3)[r])
                torch.testing.assert_close(results[e, r, k], expected)
        fired = trace.rule[e, 0]
        p, r = int(fired.argmax()), int(fired.max())
        torch.testing.assert_close(results[e, r, operands.index(p)], new[e])


@torch.no_grad()
def test_every_image_is_the_one_that_the_rule_draws():
    model = make()
    log_prior, logits = model.every_result(images(3), every_operation(3))
    assert log_prior.shape == (3, 4, 2)
    slot = model.encode(images(3))
    for r in range(4):
        drawn = model.decode(model.act(slot, r))
        torch.testing.assert_close(logits[:, r, IMAGE].sigmoid(), drawn, rtol=1e-4, atol=1e-5)


def test_a_model_without_rules_has_no_choices():
    model = DigitTransformation(OneMLP(D, 16), D, 4)
    with pytest.raises(ValueError, match=r"^every_result: this model has no rules"):
        model.every_result(images(3), every_operation(3))
