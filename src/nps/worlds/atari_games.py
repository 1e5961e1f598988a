"""The five Atari games (paper, section 4.3 and appendix "Atari"), and how each becomes data.

Preprocessing follows C-SWM's of Pong and Space Invaders: an episode is a warm-up of random actions,
one step without action, then ten random actions; the screen is cropped to some rows at full width
and shrunk to 50 × 50. An action lasts as long as in `<Game>Deterministic-v4` of gym 0.12, which
C-SWM ran: three frames in Space Invaders, four in the others. The paper does not describe the other
three games: their rows and warm-ups are ours.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

Name = Literal["pong", "space_invaders", "freeway", "breakout", "qbert"]

STEPS = 10
FRAMES = STEPS + 2
"""An observation is two frames; the first has the last of the warm-up and the next one."""
SIDE = 50


@dataclass(frozen=True)
class Game:
    """Preprocessing of a game. Actions are its minimal set, in the emulator's order."""

    rows: tuple[int, int]
    """First and last (exclusive) of the screen's 210 rows that are kept."""
    warm_up: int
    """Random actions before the episode."""
    actions: tuple[str, ...]
    frameskip: int = 4
    """Frames that an action lasts."""


GAMES: dict[Name, Game] = {
    "pong": Game((35, 190), 58, ("NOOP", "FIRE", "RIGHT", "LEFT", "RIGHTFIRE", "LEFTFIRE")),
    "space_invaders": Game(
        (30, 200), 50, ("NOOP", "FIRE", "RIGHT", "LEFT", "RIGHTFIRE", "LEFTFIRE"), frameskip=3
    ),
    "freeway": Game((20, 195), 50, ("NOOP", "UP", "DOWN")),
    "breakout": Game((30, 196), 50, ("NOOP", "FIRE", "RIGHT", "LEFT")),
    "qbert": Game((13, 190), 50, ("NOOP", "FIRE", "UP", "RIGHT", "LEFT", "DOWN")),
}

FIRST_GAMES = {name: replace(game, frameskip=4) for name, game in GAMES.items()}
"""The games as they were played before runs recorded their `world`."""


def world(game: Game) -> str:
    """What determines the episodes besides `Settings`, in words; runs record it."""
    first, last = game.rows
    return f"frameskip {game.frameskip}, warm-up {game.warm_up}, rows {first} to {last}"


@dataclass(frozen=True)
class Settings:
    """Size and seed of the data. The defaults are the paper's."""

    train: int = 1000
    """Training episodes."""
    test: int = 100
    """Test episodes."""
    seed: int = 0
    """Below 2^32. It determines an episode's actions, with the set and the index in the set."""

    def __post_init__(self) -> None:
        for name, count in (("train", self.train), ("test", self.test)):
            if count < 1:
                raise ValueError(f"{name}: got {count}, expected at least 1 episode")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed: got {self.seed}, expected 0 to {2**32 - 1}")


def described(name: Name, settings: Settings) -> dict[str, Any]:
    """Everything that determines the content of a file, as written in its `meta`."""
    game = GAMES[name]
    return {
        "game": name,
        "train": settings.train,
        "test": settings.test,
        "seed": settings.seed,
        "steps": STEPS,
        "warm_up": game.warm_up,
        "rows": list(game.rows),
        "size": [SIDE, SIDE],
        "resize": "lanczos",
        "frameskip": game.frameskip,
        "repeat_action_probability": 0.0,
        "actions": list(game.actions),
    }
