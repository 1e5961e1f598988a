"""Falling towers: physics, pictures against MuJoCo's own rays, labels, and the file."""

import dataclasses
import sys

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from nps.errors import UserError
from nps.worlds import stacks
from nps.worlds.stacks import camera, episodes, file, making
from nps.worlds.stacks.making import HEIGHTS, Falls, Settings, make_all, make_episode
from nps.worlds.stacks.physics import STEP, STEPS, Simulator, describe, simulate
from nps.worlds.stacks.raycast import distances, normals
from nps.worlds.stacks.towers import (
    BEYOND,
    CUBOID,
    CYLINDER,
    PALETTE,
    SPHERE,
    Tower,
    draw_tower,
    reach,
)
from tests.test_cli import call

SMALL = Settings(train=5, validation=3, test=4, four=2, seed=3)


@pytest.fixture(scope="module")
def falls():
    return make_all(SMALL)


def towers(count, height=3, **options):
    return [draw_tower(np.random.default_rng((7, i)), height, **options) for i in range(count)]


def shapes_of(tower, position=None, rotation=None):
    parts = (tower.kind.astype(np.int64), tower.size.astype(np.float32))
    pose = (tower.position if position is None else position,)
    pose += (tower.rotation if rotation is None else rotation,)
    tensors = (torch.as_tensor(np.asarray(x)) for x in (*parts, *pose))
    return stacks.Shapes(*(x[None] if x.dtype == torch.int64 else x[None].float() for x in tensors))


def falling(kind, size, height):
    """One shape above the floor."""
    return Tower(
        np.array([kind], np.uint8),
        np.array([size]),
        np.array([[0.0, 0.0, height]]),
        np.array([[1.0, 0.0, 0.0, 0.0]]),
        np.array([0], np.uint8),
        -1,
    )


# -- towers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("height", [2, 3, 4])
def test_towers_stand_on_each_other_and_break_at_one_level(height):
    seen = set()
    for tower in towers(60, height):
        kinds = [int(kind) for kind in tower.kind]
        lying = [
            abs(w) < 0.71 and kind == CYLINDER and abs(x) > 1e-9
            for kind, (w, x, _, _) in zip(kinds, tower.rotation, strict=True)
        ]
        half = np.where(lying, tower.size[:, 0], tower.size[:, 2])
        np.testing.assert_allclose(tower.position[:, 2] - half, np.cumsum(2 * half) - 2 * half)
        assert all(kind != SPHERE for kind in kinds[:-1])
        assert not any(lying[:-1])
        assert len(set(tower.colour.tolist())) == height
        assert np.abs(tower.position[0, :2]).max() <= 2
        volume = {CUBOID: 8.0, CYLINDER: 2 * np.pi, SPHERE: 4 / 3 * np.pi}
        mass = np.array([volume[k] for k in kinds]) * tower.size.prod(-1)
        for i in range(height - 1):
            above = (mass[i + 1 :, None] * tower.position[i + 1 :, :2]).sum(0) / mass[i + 1 :].sum()
            w, _, _, z = tower.rotation[i]
            yaw = 2 * np.arctan2(z, w)
            turn = np.array([[np.cos(yaw), np.sin(yaw)], [-np.sin(yaw), np.cos(yaw)]])
            away = np.abs(turn @ (above - tower.position[i, :2]))
            edge = tower.size[i, :2] / (2 if kinds[i] == CYLINDER else 1)
            if i == tower.breaks:
                assert np.isclose(away, edge + BEYOND).any()
            else:
                assert (away <= 0.5 * edge + 1e-9).all()
        seen.add((tower.breaks, kinds[-1]))
    assert {breaks for breaks, _ in seen} == set(range(height - 1))
    assert {top for _, top in seen} == {CUBOID, CYLINDER, SPHERE}


def test_reach_is_half_of_a_cylinders_radius():
    from nps.worlds.stacks.towers import Shape

    assert reach(Shape(CUBOID, (0.4, 0.3, 0.2), 0.0, False)).tolist() == [0.4, 0.3]
    assert reach(Shape(CYLINDER, (0.4, 0.4, 0.2), 0.0, False)).tolist() == [0.2, 0.2]


# -- physics -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [CUBOID, CYLINDER, SPHERE])
def test_a_shape_falls_as_galileo_says_and_rests_on_the_floor(kind):
    fall = simulate(falling(kind, (0.3, 0.3, 0.3), 4.0), 20)
    for t in range(1, 6):
        n = t * STEPS  # semi-implicit Euler
        assert fall.position[t, 0, 2] == pytest.approx(
            4 - 9.81 * STEP**2 * n * (n + 1) / 2, abs=1e-4
        )
    assert fall.position[-1, 0, 2] == pytest.approx(0.3, abs=0.01)
    assert not fall.grounded[:5].any()
    assert fall.grounded[-1].all()


def test_towers_without_a_broken_level_stand_and_others_fall():
    standing = [simulate(tower, 12) for tower in towers(12, falls=False)]
    flat = [fall for fall in standing if fall.speed < 0.05]
    assert len(flat) >= 8  # a sphere or a lying cylinder on top may roll
    for fall in flat:
        assert np.abs(fall.position[-1] - fall.position[0]).max() < 0.05
    broken = [simulate(tower, 20) for tower in towers(12)]
    assert np.mean([fall.speed > 0.2 for fall in broken]) > 0.7


def test_nobody_sinks_into_the_floor_and_the_lowest_stays(falls):
    for found in falls.values():
        lowest = found.size.min(-1)[:, None]
        assert (found.position[..., 2] > lowest - 0.03).all()
        np.testing.assert_allclose(np.linalg.norm(found.rotation, axis=-1), 1.0, atol=1e-5)
        assert np.abs(found.position[:, -1, 0] - found.position[:, 0, 0]).max() < 0.3
        moved = np.linalg.norm(found.position[:, -1, -1] - found.position[:, 0, -1], axis=-1)
        assert (moved > 0.2).all()


def test_contacts_are_those_of_shapes_that_meet(falls):
    found = falls["train"]
    assert np.array_equal(found.touched, found.touched.swapaxes(-1, -2))
    assert not found.touched[..., range(3), range(3)].any()
    assert found.grounded[:, 1:, 0].mean() > 0.95  # the lowest stands on the floor
    assert found.grounded[:, -1, -1].mean() > 0.5  # the uppermost has come down
    apart = np.linalg.norm(found.position[:, :, :, None] - found.position[:, :, None], axis=-1)
    far = np.linalg.norm(found.size, axis=-1)
    reachable = apart < far[:, None, :, None] + far[:, None, None] + 0.9  # the way of a frame
    assert (reachable | ~found.touched).all()


def test_a_push_moves_what_is_pushed():
    world = Simulator(towers(1, falls=False)[0])
    before = world.position
    world.push(2, (3.0, 0.0, 0.0))
    for _ in range(4):
        world.frame()
    moved = np.linalg.norm(world.position - before, axis=-1)
    assert moved[2] > 0.3
    assert moved[0] < 0.1


# -- camera and pictures -----------------------------------------------------------------------


def mujoco_rays(tower, pixels):
    """What MuJoCo's own ray casting says, after some time of falling."""
    import mujoco

    model = mujoco.MjModel.from_xml_string(describe(tower))
    data = mujoco.MjData(model)
    towards = camera.rays(camera.grid(pixels, pixels), pixels).double().numpy()
    count = len(towards)
    for steps in (0, 300, 300):
        for _ in range(steps):
            mujoco.mj_step(model, data)
        mujoco.mj_forward(model, data)
        geom, far = np.zeros(count, np.int32), np.zeros(count)
        start = np.array(camera.PLACE)
        flags = (None, 1, -1)
        mujoco.mj_multiRay(
            model, data, start, towards.flatten(), *flags, geom, far, None, count, 1e9
        )
        shapes = shapes_of(tower, data.xpos[1:].copy(), data.xquat[1:].copy())
        yield shapes, np.clip(geom - 2, 0, None), far


def test_places_are_those_of_the_moment_they_are_recorded_at():
    world = Simulator(falling(SPHERE, (0.3,) * 3, 4.0))
    world.frame()
    assert np.array_equal(world.position[0], world.data.qpos[:3].astype(np.float32))


def test_pictures_show_what_mujoco_sees():
    """Shape for shape and pixel for pixel, and at the same distance."""
    agreement = []
    for tower in towers(8, 4):
        for shapes, geom, far in mujoco_rays(tower, 96):
            ours = stacks.segment(shapes, pixels=96)[0].numpy()
            agreement.append((ours == geom).mean())
            eye = torch.tensor(camera.PLACE).expand(1, 1, 3)
            towards = camera.rays(camera.grid(96, 96), 96)[None]
            nearest = distances(shapes, eye, towards)[0].amin(0).numpy()
            both = (ours == geom) & (geom > 0)
            np.testing.assert_allclose(nearest[both], far[both], atol=2e-3)
    assert min(agreement) >= 0.999


def test_projection_is_the_inverse_of_rays():
    points = torch.rand(50, 3) * 4 - 2
    at = camera.project(points)
    towards = camera.rays(at)
    away = torch.nn.functional.normalize(points - torch.tensor(camera.PLACE), dim=-1)
    torch.testing.assert_close(towards, away, atol=1e-5, rtol=0)
    axes = camera.axes()
    torch.testing.assert_close(axes.T @ axes, torch.eye(3), atol=1e-6, rtol=0)
    assert torch.linalg.det(axes) == pytest.approx(1.0, abs=1e-5)
    corner = camera.project(torch.tensor([[0.0, 0.0, 3.0], [0.0, 0.0, 0.0]]))
    assert corner[0, 1] < corner[1, 1]  # higher in the world: a smaller row


@pytest.mark.parametrize("kind", [CUBOID, CYLINDER, SPHERE])
def test_normals_point_out_of_the_surface(kind):
    """A step along the normal leaves the shape, one against it enters."""
    tower = falling(kind, (0.4, 0.4, 0.3) if kind != SPHERE else (0.4,) * 3, 1.0)
    turn = np.array([[0.8, 0.3, -0.4, 0.33]])
    shapes = shapes_of(tower, rotation=turn / np.linalg.norm(turn))
    eye = torch.tensor(camera.PLACE).expand(1, 1, 3)
    towards = camera.rays(camera.grid(80, 80), 80)[None]
    far = distances(shapes, eye, towards)[0, 0]
    hit = far < float("inf")
    assert hit.sum() > 20
    at = (eye[0] + far.unsqueeze(-1) * towards[0])[hit][None]
    facing = normals(shapes, torch.zeros(1, at.shape[1], dtype=torch.int64), at)
    torch.testing.assert_close(facing.norm(dim=-1), torch.ones(facing.shape[:2]), atol=1e-3, rtol=0)
    assert ((facing[0] * towards[0][hit]).sum(-1) < 1e-3).all()
    outside = distances(shapes, at + 0.02 * facing, -facing)[0, 0]
    torch.testing.assert_close(outside, torch.full_like(outside, 0.02), atol=2e-3, rtol=0)


def test_pictures_have_the_shapes_colours_and_shadows():
    tower = towers(1)[0]
    shapes, colour = shapes_of(tower), torch.from_numpy(tower.colour.astype(np.int64))[None]
    picture = stacks.render(shapes, colour, pixels=64)
    assert picture.shape == (1, 64, 64, 3)
    seen = stacks.segment(shapes, pixels=64)[0].view(64, 64)
    for i in range(3):
        ink = torch.tensor(PALETTE[tower.colour[i]]).float()
        inside = picture[0][seen == i + 1].float()
        likeness = torch.nn.functional.cosine_similarity(inside, ink[None], dim=-1)
        assert likeness.median() > 0.99
    lifted = shapes._replace(position=shapes.position + torch.tensor([0.0, 0.0, 50.0]))
    empty = stacks.render(lifted, colour, pixels=64)
    floor = (seen == 0) & (torch.arange(64)[:, None] > 32)
    darker = empty[0][floor].float() - picture[0][floor].float()
    assert (darker.mean(-1) > 30).sum() > 5  # the tower's shadow
    assert (darker.mean(-1).abs() < 1).float().mean() > 0.8


# -- labels ------------------------------------------------------------------------------------


def test_boxes_and_masks_of_a_picture(falls):
    found = episodes.Episodes.of(falls["test"])
    shapes = found.shapes(4)
    middle = stacks.centres(shapes.position)
    torch.testing.assert_close(middle, camera.project(shapes.position) / 224)
    edges = stacks.boxes(shapes.position)
    torch.testing.assert_close((edges[..., 2:] + edges[..., :2]) / 2, middle)
    torch.testing.assert_close(224 * (edges[..., 2:] - edges[..., :2]), torch.full((4, 3, 2), 70.0))
    seen = stacks.segment(shapes).view(4, 224, 224)
    masks, tight = stacks.masks(shapes), stacks.tight_boxes(shapes)
    for e in range(4):
        for m in range(3):
            own = seen[e] == m + 1
            left, top = (224 * edges[e, m, :2]).tolist()
            for i in range(0, 28, 5):
                for j in range(0, 28, 5):
                    row, column = int(top + (i + 0.5) * 2.5), int(left + (j + 0.5) * 2.5)
                    around = own[row - 1 : row + 2, column - 1 : column + 2]
                    if around.numel() == 9 and around.all() == around.any():
                        assert masks[e, m, i, j] == own[row, column]
            rows, columns = own.nonzero().unbind(-1)
            expected = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
            torch.testing.assert_close(224 * tight[e, m], torch.stack(expected).float())


def test_a_hidden_shape_has_no_mask_and_no_box():
    small, big = falling(SPHERE, (0.1,) * 3, 1.0), falling(CUBOID, (0.5,) * 3, 1.0)
    towards = camera.rays(camera.project(torch.tensor([[0.0, 0.0, 1.0]])))[0].numpy()
    both = Tower(*(np.concatenate([a, b]) for a, b in zip(small[:5], big[:5], strict=True)), -1)
    both.position[1] -= 2 * towards
    shapes = shapes_of(both)
    assert not stacks.masks(shapes)[0, 0].any()
    assert stacks.masks(shapes)[0, 1].any()
    assert stacks.tight_boxes(shapes)[0, 0].tolist() == [0, 0, 0, 0]


# -- episodes and their file -------------------------------------------------------------------


def test_the_same_episodes_from_the_same_seed_whoever_makes_them(falls):
    counted = []
    again = make_all(SMALL, workers=2, advance=counted.append)
    assert counted[-1] == SMALL.episodes == 14
    other = make_all(dataclasses.replace(SMALL, seed=4, train=1, validation=1, test=1, four=1))
    for name, height in HEIGHTS.items():
        for a, b in zip(falls[name], again[name], strict=True):
            assert np.array_equal(a, b)
        assert falls[name].position.shape == (getattr(SMALL, name), 32, height, 3)
        assert not np.array_equal(falls[name].size[:1], other[name].size)
    assert not np.array_equal(falls["train"].size[:3], falls["validation"].size)


def test_a_tower_that_stands_is_drawn_again(monkeypatch):
    speeds = iter([0.1, 0.0, 0.3])
    fall = simulate(towers(1)[0], 2)
    monkeypatch.setattr(making, "simulate", lambda *_: fall._replace(speed=next(speeds)))
    make_episode(np.random.default_rng(0))
    assert next(speeds, None) is None


def test_the_file_gives_back_what_it_got(falls):
    data = file.pack(SMALL, falls)
    assert data == file.pack(SMALL, falls)
    found = file.unpack(data, SMALL)
    for name in HEIGHTS:
        for a, b in zip(falls[name], found[name], strict=True):
            assert a.dtype == b.dtype
            assert np.array_equal(a, b)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:-200], "truncated"),
        (lambda data: b"nothing", "not a .npz"),
        (lambda data: data[:5000] + bytes(60) + data[5060:], "damaged"),
    ],
)
def test_a_damaged_file_is_refused(falls, change, message):
    with pytest.raises(ValueError, match=message):
        file.unpack(change(file.pack(SMALL, falls)), SMALL)


def test_a_file_of_other_settings_or_shapes_is_refused(falls):
    data = file.pack(SMALL, falls)
    with pytest.raises(ValueError, match="seed 3, expected 9"):
        file.unpack(data, dataclasses.replace(SMALL, seed=9))
    wrong = falls | {"test": Falls(*(x[:2] for x in falls["test"]))}
    with pytest.raises(ValueError, match=r"test_kind: got uint8 \(2, 3\), expected \(4, 3\)"):
        file.unpack(file.pack(SMALL, wrong), SMALL)


@pytest.mark.parametrize("field", ["train", "validation", "test", "four", "seed"])
def test_bad_settings_are_named(field):
    with pytest.raises(ValueError, match=f"^{field}: got -1"):
        Settings(**{field: -1})


def test_the_command_makes_the_file_once(tmp_path, monkeypatch):
    monkeypatch.setenv("NPS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("NPS_DATA", raising=False)
    flags = ["--train=5", "--validation=3", "--test=4", "--four=2", "--seed=3", "--workers=1"]
    out, _ = call("data", "stacks", *flags)
    assert "simulated" in out
    out, _ = call("data", "stacks", *flags, "--to", str(tmp_path / "stick"))
    assert "from " in out
    out, _ = call("data", "stacks", *flags)
    assert "already there" in out
    refused = call("data", "stacks", *flags[:4], code=2)[1]
    assert f"seed 3, expected {making.Settings.seed}" in refused
    monkeypatch.setenv("NPS_CACHE", str(tmp_path / "none"))
    with pytest.raises(UserError, match="nps data stacks --train 5"):
        episodes.load(SMALL)
    monkeypatch.setenv("NPS_DATA", str(tmp_path / "stick"))
    sets = episodes.load(SMALL)
    assert sets["four"].position.shape == (2, 32, 4, 3)
    assert sets["train"].at(slice(2)).kind.shape == (2, 3)
    assert "test: got 0" in call("data", "stacks", "--test=0", code=2)[1]


def test_without_mujoco_one_line_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mujoco", None)
    _, said = call("data", "stacks", "--to", str(tmp_path / "new"), "--seed=99", code=2)
    assert "falling towers need the extra" in said
    assert "[stacks]" in said
    assert not (tmp_path / "new").exists()


def test_autocast_changes_no_picture(falls):
    """A training in bf16 draws its pictures within its step."""
    few = stacks.Episodes.of(falls["train"])
    shapes = few.shapes(8)
    with torch.autocast("cpu", torch.bfloat16):
        drawn = stacks.render(shapes, few.colour, pixels=32), stacks.masks(shapes)
        places = stacks.centres(few.position)
    assert torch.equal(drawn[0], stacks.render(shapes, few.colour, pixels=32))
    assert torch.equal(drawn[1], stacks.masks(shapes))
    assert torch.equal(places, stacks.centres(few.position))


# -- turned falls ------------------------------------------------------------------------------


def test_a_turned_fall_is_the_fall_of_a_turned_tower():
    """MuJoCo agrees, as long as a fall is not yet chaotic."""
    for tower, angle in zip(towers(4), (0.5, 2.0, -1.0, 3.0), strict=True):
        around = Rotation.from_rotvec([0.0, 0.0, angle])
        axis = tower.position[0] * [1, 1, 0]
        poses = around * Rotation.from_quat(tower.rotation, scalar_first=True)
        turned = tower._replace(
            position=around.apply(tower.position - axis) + axis,
            rotation=poses.as_quat(scalar_first=True),
        )
        found = as_episode(tower, simulate(tower, 8)).turned(torch.tensor([angle]))
        expected = as_episode(turned, simulate(turned, 8))
        torch.testing.assert_close(found.position, expected.position, rtol=0, atol=0.02)
        now, then = found.shapes(7).turns(), expected.shapes(7).turns()
        torch.testing.assert_close(now, then, rtol=0, atol=0.05)


def as_episode(tower, fall):
    parts = (tower.kind, tower.size, tower.colour, np.array(tower.breaks), *fall[:4])
    return episodes.Episodes(*(torch.as_tensor(np.asarray(x))[None] for x in parts))
