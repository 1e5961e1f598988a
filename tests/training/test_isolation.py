"""Inside, torch is as in a new process; afterwards, as the caller had it."""

import pytest
import torch

from nps.training.isolation import isolated
from nps.training.precision import set_precision

CPU = torch.device("cpu")


def globals_of_torch():
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    return {
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "threads": torch.get_num_threads(),
        "tf32": (matmul.allow_tf32, cudnn.allow_tf32),
        "deterministic": cudnn.deterministic,
        "gradients": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        "random": torch.get_rng_state().tolist(),
    }


@pytest.fixture
def unusual():
    """Settings that a notebook may have made, none of them the default."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    flags = matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic
    threads = torch.get_num_threads()
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    torch.set_num_threads(2)
    matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic = True, True, False
    yield
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)
    torch.set_num_threads(threads)
    matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic = flags


@pytest.mark.parametrize("fails", [False, True])
def test_everything_is_restored(unusual, fails):
    before = globals_of_torch()
    with torch.inference_mode():
        try:
            with isolated(CPU, threads=1):
                set_precision("float32")
                torch.manual_seed(7)
                made = torch.nn.Linear(2, 2)
                inside = globals_of_torch()
                if fails:
                    raise KeyboardInterrupt
        except KeyboardInterrupt:
            assert fails
        assert torch.is_inference_mode_enabled()
    assert globals_of_torch() == before
    assert inside["threads"] == 1
    assert inside["deterministic"]
    assert inside["gradients"] == (True, False)
    assert made.weight.device == CPU
    assert made.weight.dtype == torch.float32
    assert not made.weight.is_inference()
