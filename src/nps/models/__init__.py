"""The compositions of the paper."""

from nps.models.arithmetic import CoordinateArithmetic
from nps.models.digits import DigitTransformation

__all__ = ["CoordinateArithmetic", "DigitTransformation"]
