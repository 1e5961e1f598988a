"""Switching accelerated forms off."""

import pytest
import torch

from nps import kernels


def test_without_switches_off_and_on_again():
    assert kernels.is_on("edges")
    with kernels.without("edges", "readout"):
        with kernels.without("edges"):
            assert not kernels.is_on("edges")
        assert not kernels.is_on("edges")
        assert not kernels.is_on("readout")
        assert kernels.is_on("attention")
    assert kernels.is_on("edges")
    assert kernels.is_on("readout")


def test_without_ends_with_an_error_inside():
    with pytest.raises(RuntimeError), kernels.without("edges"):
        raise RuntimeError
    assert kernels.is_on("edges")


def test_an_unknown_operation_is_refused():
    with (
        pytest.raises(ValueError, match="operations: got edge, expected"),
        kernels.without("edge"),
    ):
        pass


def test_nothing_is_available_on_a_cpu(monkeypatch):
    x = torch.zeros(2)
    assert not kernels.available("edges", x)
    monkeypatch.setattr(kernels, "possible", lambda _: True)
    assert kernels.available("edges", x)
    with kernels.without("edges"):
        assert not kernels.available("edges", x)
