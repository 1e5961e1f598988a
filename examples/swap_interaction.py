"""Swap the interaction step of a slot model: a toy transition model, with attention or with rules.

Two of four slots collide when they are close and exchange their velocities. Run it:

    python examples/swap_interaction.py
"""

import torch
from torch import nn

import nps


class Attention(nn.Module):
    """The usual choice: every slot looks at every slot."""

    def __init__(self, slot_dim: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(slot_dim, num_heads=4, batch_first=True)

    def forward(self, slots: torch.Tensor) -> torch.Tensor:
        return slots + self.attention(slots, slots, slots)[0]


class Transition(nn.Module):
    """encode -> interact -> decode."""

    def __init__(self, interaction: nn.Module) -> None:
        super().__init__()
        self.encode = nn.Linear(4, 64)
        self.interact = interaction
        self.decode = nn.Linear(64, 4)

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        return state + self.decode(self.interact(self.encode(state)))


def balls(batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Positions and velocities of four balls, and the same after slots 0 and 1 exchanged theirs."""
    state = torch.randn(batch, 4, 4)
    after = state.clone()
    close = (state[:, 0, :2] - state[:, 1, :2]).norm(dim=-1) < 1.5
    after[close, 0, 2:], after[close, 1, 2:] = state[close, 1, 2:], state[close, 0, 2:]
    return state, after


def main() -> None:
    for name, layer in {
        "attention": Attention(64),
        "rules": nps.ParallelNPS(64, num_rules=4, hidden_dim=32),  # the swap
    }.items():
        torch.manual_seed(0)
        model = Transition(layer)
        optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
        for _ in range(300):
            state, after = balls(256)
            loss = (model(state) - after).square().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        size = sum(p.numel() for p in model.parameters())
        print(f"{name:10} {size:7} parameters, loss {loss:.4f}")


if __name__ == "__main__":
    main()
