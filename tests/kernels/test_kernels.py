"""Switching accelerated forms off."""

import importlib

import pytest
import torch

from nps import kernels


def test_without_switches_off_and_on_again():
    assert kernels.is_on("unroll")
    with kernels.without("unroll", "readout"):
        with kernels.without("unroll"):
            assert not kernels.is_on("unroll")
        assert not kernels.is_on("unroll")
        assert not kernels.is_on("readout")
        assert kernels.is_on("attention")
    assert kernels.is_on("unroll")
    assert kernels.is_on("readout")


def test_without_ends_with_an_error_inside():
    with pytest.raises(RuntimeError), kernels.without("unroll"):
        raise RuntimeError
    assert kernels.is_on("unroll")


def test_an_unknown_operation_is_refused():
    with (
        pytest.raises(ValueError, match="operations: got edges, expected"),
        kernels.without("edges"),
    ):
        pass


@pytest.mark.parametrize("operation", kernels.OPERATIONS)
def test_every_operation_says_when_its_fast_form_is_supported(operation):
    assert callable(importlib.import_module(f"nps.kernels.{operation}").supported)


def test_nothing_is_available_on_a_cpu(monkeypatch):
    x = torch.zeros(2)
    assert not kernels.available("unroll", x)
    monkeypatch.setattr(kernels, "possible", lambda _: True)
    assert kernels.available("unroll", x)
    with kernels.without("unroll"):
        assert not kernels.available("unroll", x)
