"""What NPS is compared with, behind the same call."""

from nps.interactions.attention import Attention, TransformerLayer
from nps.interactions.gnn import GNN
from nps.interactions.routing import Routing

__all__ = ["GNN", "Attention", "Routing", "TransformerLayer"]
