"""What NPS is compared with, behind the same call."""

from nps.interactions.routing import Routing

__all__ = ["Routing"]
