"""The layers that NPS is compared with. All share one call, `Interaction`."""

from nps.interactions.attention import Attention, TransformerLayer
from nps.interactions.cin import CIN
from nps.interactions.gnn import GNN
from nps.interactions.interaction import Interaction
from nps.interactions.pairwise import Pairwise
from nps.interactions.routing import Routing

__all__ = ["CIN", "GNN", "Attention", "Interaction", "Pairwise", "Routing", "TransformerLayer"]
