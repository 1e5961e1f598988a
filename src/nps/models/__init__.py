"""The paper's models: encoder, interaction and decoder put together."""

from nps.models.arithmetic import CoordinateArithmetic
from nps.models.digits import DigitTransformation
from nps.models.world_model import WorldModel

__all__ = ["CoordinateArithmetic", "DigitTransformation", "WorldModel"]
