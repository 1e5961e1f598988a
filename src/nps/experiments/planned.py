"""The claims of the paper whose experiment is not built yet: Sprites-MOT, in section 4.3."""

from __future__ import annotations

from nps.experiments.claims import Claim

SPRITES = (
    Claim(
        "section 4.3, table 5",
        "tracks better than OP3's GNN",
        "MOTA 90.7 ± 5.2 and MOTP 79.9 ± 0.3 against 89.1 ± 5.1 and 78.4 ± 2.4",
    ),
    Claim(
        "appendix F.1, table 10",
        "better in seven of eight metrics of tracking",
        "all but ID switches, 0.58 against 0.4",
    ),
    Claim(
        "appendix F.1, figure 10",
        "a slot for each sprite, and its motion predicted",
        "pictures",
    ),
)
