"""Small networks that several parts of the models share."""

from nps.networks.linear import Linear, linear
from nps.networks.mlp import NormalisedMLP

__all__ = ["Linear", "NormalisedMLP", "linear"]
