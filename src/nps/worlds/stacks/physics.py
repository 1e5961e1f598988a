"""How a tower falls, simulated by MuJoCo with the settings of ShapeStacks (extra `stacks`).

Recorded eight times a second: where each shape is, and what it touched since the frame before. Does
not import torch, so that processes start quickly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nps.errors import UserError, extra
from nps.worlds.stacks.towers import CUBOID, CYLINDER, SPHERE, Tower

if TYPE_CHECKING:
    from jaxtyping import Bool, Float32
    from numpy import ndarray

STEP = 0.003
"""Seconds that MuJoCo simulates at a time."""
STEPS = 42
"""Such steps in a frame: 0.126 seconds."""
FRAMES = 32
ROOM = 10.0
"""Half of the floor's side; two walls stand at its far edges."""
FALLING = 0.2
"""Speed of the uppermost shape, in units a second, above which a tower counts as falling."""

WORLD = f"""
<mujoco>
  <option timestep="{STEP}" solver="Newton" iterations="50" tolerance="1e-10" cone="elliptic"
    jacobian="sparse" o_margin="0" o_solref="0.02 1" o_solimp="0.7 0.75 0.001">
    <flag override="enable"/>
  </option>
  <default><geom condim="6"/></default>
  <worldbody>
    <geom name="floor" type="plane" size="{ROOM} {ROOM} 1"/>
    <geom name="left" type="plane" size="{ROOM} {ROOM} 1" pos="0 {ROOM} 0" zaxis="0 -1 0"/>
    <geom name="right" type="plane" size="{ROOM} {ROOM} 1" pos="{ROOM} 0 0" zaxis="-1 0 0"/>
    SHAPES
  </worldbody>
</mujoco>
"""
FIXED = 3
"""Floor and walls: the first geoms."""


class Fall(NamedTuple):
    """T frames of M shapes."""

    position: Float32[ndarray, "T M 3"]
    rotation: Float32[ndarray, "T M 4"]
    touched: Bool[ndarray, "T M M"]
    """Which shapes touched each other since the frame before; in the first frame, at once."""
    grounded: Bool[ndarray, "T M"]
    """Which touched the floor or a wall."""
    speed: float
    """The largest of the uppermost shape, at the recorded frames."""


def describe(tower: Tower) -> str:
    """The tower in MuJoCo's language."""
    bodies = []
    for i in range(len(tower.kind)):
        a, b, c = (f"{x:.9g}" for x in tower.size[i])
        size = {
            CUBOID: f'type="box" size="{a} {b} {c}"',
            CYLINDER: f'type="cylinder" size="{a} {c}" friction="1 0.01 0.01"',
            SPHERE: f'type="sphere" size="{a}"',
        }[int(tower.kind[i])]
        place, turn = (
            " ".join(f"{x:.9g}" for x in part[i]) for part in (tower.position, tower.rotation)
        )
        bodies.append(f'<body pos="{place}" quat="{turn}"><freejoint/><geom {size}/></body>')
    return WORLD.replace("SHAPES", "\n    ".join(bodies))


class Simulator:
    """One tower in MuJoCo."""

    def __init__(self, tower: Tower) -> None:
        self.mujoco = require_mujoco()
        self.model = self.mujoco.MjModel.from_xml_string(describe(tower))
        self.data = self.mujoco.MjData(self.model)
        self.shapes = len(tower.kind)
        self.mujoco.mj_forward(self.model, self.data)

    def touching(self) -> Bool[ndarray, "M+1 M+1"]:
        """Which shapes touch each other and, last, floor or walls."""
        found = np.zeros((self.shapes + 1, self.shapes + 1), bool)
        if self.data.ncon:
            pairs = self.data.contact.geom - FIXED
            pairs = np.where(pairs < 0, self.shapes, pairs)
            found[pairs[:, 0], pairs[:, 1]] = found[pairs[:, 1], pairs[:, 0]] = True
        return found

    def push(self, shape: int, velocity: Any) -> None:
        """Add to a shape's velocity, three numbers in units a second."""
        self.data.qvel[6 * shape : 6 * shape + 3] += velocity

    def frame(self) -> Bool[ndarray, "M+1 M+1"]:
        """Go on by one frame; what touched on the way."""
        touched = np.zeros((self.shapes + 1, self.shapes + 1), bool)
        for _ in range(STEPS):
            self.mujoco.mj_step(self.model, self.data)
            touched |= self.touching()
        self.mujoco.mj_kinematics(self.model, self.data)  # a step leaves places one step behind
        return touched

    @property
    def position(self) -> Float32[ndarray, "M 3"]:
        return np.array(self.data.xpos[1:], np.float32)

    @property
    def rotation(self) -> Float32[ndarray, "M 4"]:
        return np.array(self.data.xquat[1:], np.float32)

    @property
    def top_speed(self) -> float:
        """Speed of the shape that was uppermost at first."""
        return float(np.linalg.norm(self.data.qvel[-6:-3]))


def simulate(tower: Tower, frames: int = FRAMES) -> Fall:
    """Let a tower fall."""
    world = Simulator(tower)
    touched = [world.touching()]
    position, rotation, speed = [world.position], [world.rotation], 0.0
    for _ in range(frames - 1):
        touched.append(world.frame())
        position.append(world.position)
        rotation.append(world.rotation)
        speed = max(speed, world.top_speed)
    pairs = np.stack(touched)
    m = world.shapes
    return Fall(np.stack(position), np.stack(rotation), pairs[:, :m, :m], pairs[:, :m, m], speed)


def require_mujoco() -> Any:
    try:
        import mujoco
    except ImportError:
        raise UserError(f"falling towers need the extra: {extra('stacks')}") from None
    return mujoco
