"""The layout of images of few channels: the kernel against torch's operations.

That the convolution of this layout is the same convolution is tested in test_conv2d_cudnn.py.
"""

import pytest
import torch

from nps.kernels.unroll import _by_torch, unrolled_channels
from tests.interpreter import interpreted


def compare_layouts(device: str) -> None:
    """The kernel writes the same numbers as torch's operations, in bf16 to the bit."""
    from nps.kernels.triton.unroll import unroll

    draw = torch.Generator().manual_seed(0)
    # For bf16 the interpreter truncates, where a GPU rounds.
    kinds = [torch.float32] if device == "cpu" else [torch.float32, torch.bfloat16]
    for channels, kernel, width in ((3, 9, 50), (6, 9, 50), (1, 3, 4), (3, 3, 14)):
        image = torch.randint(256, (3, 5, width, channels), generator=draw)
        for form in (image.byte(), image / 255.0):
            for kind in kinds:
                theirs = _by_torch(form, kernel, kind)
                ours = unroll(form.to(device), kernel, unrolled_channels(channels, kernel), kind)
                if kind == torch.bfloat16:
                    assert torch.equal(ours.cpu(), theirs), (channels, kernel, width)
                torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-6, atol=0)


def test_the_layout_in_the_interpreter():
    pytest.importorskip("triton")
    interpreted(f"from {__name__} import compare_layouts; compare_layouts('cpu')")


@pytest.mark.gpu
def test_the_layout_on_a_gpu():
    compare_layouts("cuda")
