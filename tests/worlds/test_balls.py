"""Bouncing balls: physics, against plain Python too; random scenes; images."""

import math

import pytest
import torch

from nps.worlds.balls import BOX, PALETTE, make_scenes, render
from nps.worlds.balls.dynamics import Bodies, simulate
from nps.worlds.balls.scenes import CURTAIN, HEAVY, LIGHT, SPEED

NUMBERS = pytest.mark.parametrize("balls", [(4, 4), (6, 8), (1, 2)])


def as_bodies(scenes):
    numbers = (scenes.position[:, 0], scenes.velocity[:, 0], scenes.radius, scenes.mass)
    return Bodies(*(x.double() for x in numbers), scenes.present)


@NUMBERS
def test_energy_is_kept_and_nobody_overlaps_or_leaves(balls):
    scenes = make_scenes(20, 100, seed=0, balls=balls)
    seen = simulate(as_bodies(scenes), 100)
    mass, radius, present = (x.double() for x in (scenes.mass, scenes.radius, scenes.present))
    x = torch.stack([frame.bodies.position for frame in seen], 1)
    v = torch.stack([frame.bodies.velocity for frame in seen], 1)
    energy = (0.5 * mass[:, None] * v.square().sum(-1)).sum(-1)
    torch.testing.assert_close(energy, energy[:, :1].expand_as(energy), rtol=1e-12, atol=0)
    inside = (x >= radius[:, None, :, None] - 1e-9) & (x <= BOX - radius[:, None, :, None] + 1e-9)
    assert (inside.all(-1) | ~scenes.present[:, None]).all()
    distance = (x.unsqueeze(-2) - x.unsqueeze(-3)).norm(dim=-1)
    reach = radius.unsqueeze(-1) + radius.unsqueeze(-2)
    both = present.unsqueeze(-1) * present.unsqueeze(-2)
    both = both.triu(1).bool()
    assert (distance >= reach[:, None] - 1e-9).transpose(0, 1)[:, both].all()
    assert scenes.collided.any() or balls == (1, 2)


def test_balls_keep_their_momentum_between_walls():
    """Summed over a scene, momentum changes only in frames in which a wall is hit."""
    scenes = make_scenes(50, 100, seed=1)
    seen = simulate(as_bodies(scenes), 100)
    mass = scenes.mass.double().unsqueeze(-1)
    momentum = torch.stack([(mass * frame.bodies.velocity).sum(1) for frame in seen], 1)
    change = (momentum[:, 1:] - momentum[:, :-1]).norm(dim=-1)
    collided = torch.stack([frame.collided.flatten(1).any(1) for frame in seen[1:]], 1)
    bounced = torch.stack([frame.bounced.any(1) for frame in seen[1:]], 1)
    only_balls = collided & ~bounced
    assert only_balls.sum() > 100
    assert (change[only_balls] < 1e-12).all()
    assert (change[bounced] > 1e-3).float().mean() > 0.9


def plain(position, velocity, radius, mass, frames):
    """The same physics for one box, one ball after the other, in plain Python.

    Returns (positions, velocities, pairs) of every frame.
    """
    x, v = [list(p) for p in position], [list(p) for p in velocity]
    n = len(x)
    seen = [([tuple(p) for p in x], [tuple(p) for p in v], set())]

    def pair_time(i, j):
        dx, dy = x[j][0] - x[i][0], x[j][1] - x[i][1]
        du, dw = v[j][0] - v[i][0], v[j][1] - v[i][1]
        towards = dx * du + dy * dw
        speed = du * du + dw * dw
        inside = towards**2 - speed * (dx * dx + dy * dy - (radius[i] + radius[j]) ** 2)
        if towards >= 0 or inside <= 0:
            return math.inf
        return max(0.0, (-towards - math.sqrt(inside)) / speed)

    def wall_time(i, axis):
        if v[i][axis] == 0:
            return math.inf
        end = BOX - radius[i] if v[i][axis] > 0 else radius[i]
        return max(0.0, (end - x[i][axis]) / v[i][axis])

    while len(seen) < frames:
        left, pairs = 1.0, set()
        while left > 0:
            events = [(wall_time(i, axis), "wall", i, axis) for i in range(n) for axis in (0, 1)]
            events += [(pair_time(i, j), "pair", i, j) for i in range(n) for j in range(i + 1, n)]
            time, kind, i, k = min(events)
            step = min(time, left)
            for ball in range(n):
                for axis in (0, 1):
                    x[ball][axis] += v[ball][axis] * step
            left -= step
            if time > step:
                continue
            if kind == "wall":
                v[i][k] = -v[i][k]
                continue
            pairs.add((i, k))
            dx, dy = x[k][0] - x[i][0], x[k][1] - x[i][1]
            length = math.hypot(dx, dy)
            nx, ny = dx / length, dy / length
            closing = (v[i][0] - v[k][0]) * nx + (v[i][1] - v[k][1]) * ny
            total = mass[i] + mass[k]
            for axis, direction in ((0, nx), (1, ny)):
                v[i][axis] -= 2 * mass[k] / total * closing * direction
                v[k][axis] += 2 * mass[i] / total * closing * direction
        seen.append(([tuple(p) for p in x], [tuple(p) for p in v], pairs))
    return seen


@NUMBERS
def test_equals_a_plain_loop(balls):
    scenes = make_scenes(6, 25, seed=2, balls=balls)
    start = as_bodies(scenes)
    seen = simulate(start, 25)
    for b in range(6):
        n = int(scenes.present[b].sum())
        numbers = (x[b, :n].tolist() for x in start[:4])
        for t, (x, v, pairs) in enumerate(plain(*numbers, frames=25)):
            bodies = seen[t].bodies
            assert torch.allclose(bodies.position[b, :n], torch.tensor(x, dtype=torch.float64))
            assert torch.allclose(bodies.velocity[b, :n], torch.tensor(v, dtype=torch.float64))
            found = {(i, j) for i, j in seen[t].collided[b].nonzero().tolist() if i < j}
            assert found == pairs


def test_a_head_on_collision():
    """Equal masses exchange their velocities; a wall in between two frames turns a ball round."""
    bodies = Bodies(
        torch.tensor([[[2.0, 5.0], [5.0, 5.0]]]).double(),
        torch.tensor([[[0.75, 0.0], [-0.75, 0.0]]]).double(),
        torch.ones(1, 2).double(),
        torch.ones(1, 2).double(),
        torch.ones(1, 2).bool(),
    )
    seen = simulate(bodies, 6)
    assert [bool(frame.collided[0, 0, 1]) for frame in seen] == [False, True] + 4 * [False]
    assert seen[1].bodies.velocity[0, :, 0].tolist() == [-0.75, 0.75]
    assert torch.equal(seen[1].collided, seen[1].collided.mT)
    assert [frame.bounced[0].tolist() for frame in seen][3] == [True, False]


def test_scenes_are_a_function_of_the_seed():
    first, again, other = (make_scenes(8, 5, seed) for seed in (3, 3, 4))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first.position, other.position)
    assert first.position.shape == (8, 5, 4, 2)
    assert first.velocity[:, 0].norm(dim=-1).sub(SPEED).abs().max() < 1e-6
    kinds = torch.stack([first.radius, first.mass], -1).flatten(0, 1).unique(dim=0)
    assert kinds.tolist() == [[*LIGHT], [*HEAVY]]
    part = first.at(torch.tensor([5, 2]))
    assert torch.equal(part.collided, first.collided[[5, 2]])


def test_every_number_of_balls_occurs():
    scenes = make_scenes(60, 1, seed=0, balls=(6, 8))
    assert set(scenes.present.sum(-1).tolist()) == {6, 7, 8}
    assert (scenes.position[:, 0][~scenes.present] == 0).all()


def drawn(scenes, **options):
    return render(scenes.position, scenes.radius, scenes.present, scenes.colour, **options)


@pytest.mark.parametrize("size", [64, 32])
def test_images_show_each_ball_where_it_is(size):
    scenes = make_scenes(2, 2, seed=5, balls=(2, 5))
    images, labels = drawn(scenes, size=size)
    assert images.shape == (2, 2, size, size, 3)
    for b in range(2):
        for t in range(2):
            for row in range(size):
                for column in range(size):
                    at = (column + 0.5) * BOX / size, (row + 0.5) * BOX / size
                    inside = [
                        m + 1
                        for m in range(5)
                        if scenes.present[b, m]
                        and math.dist(at, scenes.position[b, t, m].tolist()) < scenes.radius[b, m]
                    ]
                    label = int(labels[b, t, row, column])
                    assert [label] == (inside or [0])
                    ink = PALETTE[scenes.colour[b, label - 1]] if label else (0, 0, 0)
                    assert tuple(images[b, t, row, column].tolist()) == ink


def test_a_curtain_hides_what_is_behind_it():
    scenes = make_scenes(40, 3, seed=6)
    plainly, hidden = drawn(scenes), drawn(scenes, curtain=scenes.curtain)
    changed = plainly.labels != hidden.labels
    assert changed.any()
    assert (hidden.labels[changed] == 0).all()
    assert (hidden.images[changed] == 0).all()
    share = torch.ones(1, 1, 1, 2)
    cover = render(share * 5, torch.full((1, 1), 20.0), share[:, :, 0, 0].bool(),
                   torch.zeros(1, 1).long(), curtain=torch.tensor([[1.0, 3.0]]))  # fmt: skip
    rows, columns = (cover.labels[0, 0] == 0).nonzero().unbind(-1)
    side = round(CURTAIN * 6.4)
    assert abs(len(rows) - side**2) < 3 * side
    assert rows.float().mean() > columns.float().mean() + 10  # lower than it is to the right
