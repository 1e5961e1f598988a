"""Queries and keys are exact, whatever the type of the features."""

import pytest
import torch

from nps.rules.projection import Projection


@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_equals_the_formula(kind):
    torch.manual_seed(0)
    projection = Projection(6, 3, kind).double()
    features = torch.randn(2, 5, 6, dtype=torch.float64)
    x = features
    if kind == "mlp":
        x = (x @ projection.hidden.weight.t() + projection.hidden.bias).clamp(min=0)
    torch.testing.assert_close(projection(features), x @ projection.out.weight.t())


def test_half_precision_is_projected_in_float32():
    torch.manual_seed(0)
    projection = Projection(6, 3).bfloat16()
    features = torch.randn(5, 6).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = projection(features)
    assert y.dtype == torch.float32
    torch.testing.assert_close(y, features.float() @ projection.out.weight.float().t())
