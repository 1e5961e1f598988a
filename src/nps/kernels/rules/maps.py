"""Queries and keys multiplied out: features meet rules and contexts in one small matrix each.

score_ji = (f_j W^q) · (R_i W^k) = f_j · rule_map_i, and likewise for contexts. With linear queries
this is exact, and it replaces several products over all slots by one. In Algorithm 2 the bids of
the rules and of the null rule are two more rows before those of the rules. On a GPU the kernels of
`triton_maps.py` do the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from nps.kernels.rules.inputs import Values, add_product, product

if TYPE_CHECKING:
    from jaxtyping import Float


class Maps(NamedTuple):
    rule_map: Float[Tensor, "*S R F"]
    bind_map: Float[Tensor, "*S F F"]
    keys: Float[Tensor, "*S N key"]
    bidders: Float[Tensor, "*S 2 key"] | None


def forward(values: Values) -> Maps:
    keys = product(values.embedding, values.select_key.mT)
    rule_map = product(keys, values.select_query)
    bind_map = product(values.bind_query.mT, values.bind_key)
    if values.slot_key is None:
        return Maps(rule_map, bind_map, keys, None)
    *s, n, rule, key = values.applicability.shape  # type: ignore[union-attr]
    matrix = values.applicability.reshape(*s, n * rule, key)  # type: ignore[union-attr]
    joint = product(values.embedding.reshape(*s, 1, n * rule), matrix)
    joint = joint + values.retired.unsqueeze(-2)  # type: ignore[union-attr]
    bidders = torch.cat([joint, values.null_rule.unsqueeze(-2)], -2)  # type: ignore[union-attr]
    rule_map = torch.cat([product(bidders, values.slot_key), rule_map], -2)
    return Maps(rule_map, bind_map, keys, bidders)


def backward(values: Values, maps: Maps, to_rule_map: Tensor, to_bind_map: Tensor) -> list[Tensor]:
    """To embedding, select_key, select_query, bind_query, bind_key [slot_key, applicability,
    null_rule]."""
    to_bids = None
    if maps.bidders is not None:
        to_bids, to_rule_map = to_rule_map.split([2, to_rule_map.shape[-2] - 2], -2)
    to_keys = product(to_rule_map, values.select_query.mT)
    to_embedding = product(to_keys, values.select_key)
    found = [
        to_embedding,
        product(to_keys.mT, values.embedding),
        product(maps.keys.mT, to_rule_map),
        product(values.bind_key, to_bind_map.mT),
        product(values.bind_query, to_bind_map),
    ]
    if to_bids is None:
        return found
    *s, n, rule, key = values.applicability.shape  # type: ignore[union-attr]
    to_bidders = product(to_bids, values.slot_key.mT)  # type: ignore[union-attr]
    to_joint = to_bidders[..., :1, :]
    matrix = values.applicability.reshape(*s, n * rule, key)  # type: ignore[union-attr]
    concatenated = values.embedding.reshape(*s, n * rule, 1)
    through = add_product(to_embedding.view(*s, n * rule, 1), matrix, to_joint.mT)
    found[0] = through.view(*s, n, rule)
    to_slot_key = product(maps.bidders.mT, to_bids)  # type: ignore[union-attr]
    to_applicability = (concatenated * to_joint).view(*s, n, rule, key)
    return [*found, to_slot_key, to_applicability, to_bidders[..., 1, :]]
