"""Several projections of the same features: what each gives alone, values and gradients."""

import pytest
import torch

from nps.rules.projection import Projection


@pytest.mark.parametrize("kinds", [("linear",), ("linear",) * 3, ("mlp", "mlp"), ("linear", "mlp")])
def test_together_equals_each_alone(kinds):
    torch.manual_seed(0)
    projections = [Projection(6, 3 + i, kind).double() for i, kind in enumerate(kinds)]
    parameters = [p for projection in projections for p in projection.parameters()]
    features = torch.randn(2, 5, 6, dtype=torch.float64, requires_grad=True)
    ours = project(features, *projections)
    expected = [projection(features) for projection in projections]
    weights = [torch.randn_like(y) for y in expected]
    grads = []
    for outputs in (ours, expected):
        loss = sum((y * w).sum() for y, w in zip(outputs, weights, strict=True))
        grads.append(torch.autograd.grad(loss, [features, *parameters]))
    for a, b in zip([*ours, *grads[0]], [*expected, *grads[1]], strict=True):
        torch.testing.assert_close(a, b)


def test_half_precision_is_projected_in_float32():
    torch.manual_seed(0)
    projections = [Projection(6, 3).bfloat16(), Projection(6, 4).bfloat16()]
    features = torch.randn(5, 6).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ours = project(features, *projections)
    for y, projection in zip(ours, projections, strict=True):
        assert y.dtype == torch.float32
        torch.testing.assert_close(y, features.float() @ projection.out.weight.float().t())
