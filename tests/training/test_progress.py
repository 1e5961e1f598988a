"""The rate of a progress line says something at any speed."""

import pytest

from nps.training.progress import rate


@pytest.mark.parametrize(
    ("speed", "shown"),
    [
        (1234.5, "1234/s"),
        (10.4, "10/s"),
        (4.26, "4.3/s"),
        (1.0, "1/s"),
        (0.4, "2.5 s/epoch"),
        (0.01, "100 s/epoch"),
        (1e-4, "10000 s/epoch"),
    ],
)
def test_a_rate_is_never_zero(speed, shown):
    assert rate(speed, "epochs") == shown
