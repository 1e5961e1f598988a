"""The compositions of the paper."""

from nps.models.arithmetic import CoordinateArithmetic

__all__ = ["CoordinateArithmetic"]
