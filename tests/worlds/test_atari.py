"""Atari data: against gymnasium's environments, PIL's filter, and files of all kinds of wrong."""

import io
import json
import os
import signal
import subprocess
import sys
import time
import zipfile

import numpy as np
import pytest
import torch

from nps.errors import UserError
from nps.worlds import atari, atari_file, atari_play
from nps.worlds.atari_games import FIRST_GAMES, GAMES, Settings, described, world
from nps.worlds.atari_play import Played
from nps.worlds.lanczos import shrink
from tests.test_cli import call

SMALL = Settings(train=3, test=2, seed=7)
FLAGS = ["--episodes=3", "--test-episodes=2", "--seed=7"]
draw = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("NPS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("NPS_DATA", raising=False)
    return tmp_path / "cache/atari"


def invented(settings=SMALL):
    """What might have been played, by no emulator."""
    counts = {"train": settings.train, "test": settings.test}
    return {
        name: Played(
            draw.integers(256, size=(count, 12, 3, 50, 50), dtype=np.uint8),
            draw.integers(3, size=(count, 10), dtype=np.uint8),
        )
        for name, count in counts.items()
    }


@pytest.fixture
def packed(monkeypatch):
    monkeypatch.setattr(atari_play, "version", lambda: "0.0")
    return lambda played, settings=SMALL, game="pong": atari_file.pack(game, settings, played)


def put(folder, data, game="pong"):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{game}.npz").write_bytes(data)
    return folder / f"{game}.npz"


# -- the filter ---------------------------------------------------------------------------------


@pytest.mark.parametrize("height", [60, *{game.rows[1] - game.rows[0] for game in GAMES.values()}])
def test_shrinking_is_pils_to_the_bit(height):
    image = pytest.importorskip("PIL.Image")
    noise = draw.integers(256, size=(height, 160, 3), dtype=np.uint8)
    blocks = draw.integers(2, size=(height, 160, 3), dtype=np.uint8) * 255
    for picture in (noise, blocks):
        expected = image.fromarray(picture).resize((50, 50), image.Resampling.LANCZOS)
        assert np.array_equal(shrink(picture, 50, 50), np.moveaxis(np.array(expected), -1, 0))


def test_shrinking_by_a_direct_sum():
    """The filter as a formula, pixel by pixel in real numbers: at most rounding away."""
    picture = draw.integers(256, size=(31, 32, 3), dtype=np.uint8)

    def lanczos(x):
        return float(np.sinc(x) * np.sinc(x / 3)) if abs(x) < 3 else 0.0

    def along(row, after):
        scale = len(row) / after
        for i in range(after):
            weights = [lanczos((j + 0.5 - (i + 0.5) * scale) / scale) for j in range(len(row))]
            yield np.clip(np.dot(weights, row) / sum(weights), 0, 255)

    small = shrink(picture, 10, 10)
    for channel in range(3):
        narrow = np.array([list(along(row, 10)) for row in picture[..., channel]])
        expected = np.array([list(along(column, 10)) for column in narrow.T]).T
        assert np.abs(small[channel] - expected).max() <= 1.2
    assert np.array_equal(shrink(np.stack([picture] * 2), 10, 10)[1], small)


# -- playing ------------------------------------------------------------------------------------


@pytest.mark.parametrize("game", GAMES)
def test_an_episode_is_what_gymnasium_shows(game):
    """The original's environments, step by step with the actions that were drawn."""
    pytest.importorskip("ale_py")
    gymnasium = pytest.importorskip("gymnasium")
    image = pytest.importorskip("PIL.Image")
    name = "".join(word.capitalize() for word in game.split("_"))
    environment = gymnasium.make(
        f"ale_py:{name}NoFrameskip-v4",
        frameskip=3 if game == "space_invaders" else 4,  # gym 0.12's `{name}Deterministic-v4`
    )
    preparation = GAMES[game]
    assert environment.action_space.n == len(preparation.actions)
    assert tuple(environment.unwrapped.get_action_meanings()) == preparation.actions
    emulator = atari_play.Emulator(game)
    atari_play.play(emulator, game, (0, 0, 0))  # must leave no trace
    played = atari_play.play(emulator, game, (3, 1, 5))
    drawn = np.random.default_rng((3, 1, 5)).integers(
        len(preparation.actions), size=preparation.warm_up + 10, dtype=np.uint8
    )
    assert np.array_equal(played.actions, drawn[-10:])
    environment.reset(seed=11)
    seen = []
    for action in [*drawn[:-10], 0, *drawn[-10:]]:
        screen, _, ended, cut, _ = environment.step(action)
        assert not ended
        assert not cut
        rows = image.fromarray(screen[slice(*preparation.rows)])
        seen.append(np.array(rows.resize((50, 50), image.Resampling.LANCZOS)))
    environment.close()
    assert np.array_equal(played.frames, np.moveaxis(np.stack(seen[-12:]), -1, 1))


def test_the_same_episodes_whoever_plays(monkeypatch):
    pytest.importorskip("ale_py")
    monkeypatch.setattr(atari_play, "TOGETHER", 2)
    done = []
    alone = atari_play.play_all("breakout", SMALL)
    several = atari_play.play_all("breakout", SMALL, 2, done.append)
    assert done == [2, 3, 5]
    for name, count in (("train", 3), ("test", 2)):
        assert alone[name].frames.shape == (count, 12, 3, 50, 50)
        for one, other in zip(alone[name], several[name], strict=True):
            assert np.array_equal(one, other)
    actions = np.concatenate([part.actions for part in alone.values()])
    assert len(np.unique(actions, axis=0)) == 5  # each episode its own
    fewer = atari_play.play_all("breakout", Settings(1, 1, seed=7))
    assert np.array_equal(fewer["train"].frames, alone["train"].frames[:1])
    other = atari_play.play_all("breakout", Settings(1, 1, seed=8))
    assert not np.array_equal(other["train"].actions, fewer["train"].actions)


def test_an_episode_in_which_the_game_ends_is_drawn_anew():
    class Emulator:
        """Over in its first episode; shows how often it was acted upon since the reset."""

        resets = 0

        def reset(self):
            self.resets += 1
            self.acts = 0

        def act(self, action):
            self.acts += 1

        def screen(self):
            return np.full((210, 160, 3), self.acts, np.uint8)

        def over(self):
            return self.resets == 1

    emulator = Emulator()
    played = atari_play.play(emulator, "pong", (0, 0, 0))
    assert emulator.resets == 2
    assert played.frames[:, 0, 0, 0].tolist() == list(range(58, 70))
    draw = np.random.default_rng((0, 0, 0))
    _, again = (draw.integers(6, size=68, dtype=np.uint8) for _ in range(2))
    assert np.array_equal(played.actions, again[-10:])


# -- reading ------------------------------------------------------------------------------------


def test_what_was_written_is_read(cache, packed):
    played = invented()
    put(cache, packed(played))
    sets = atari.load("pong", SMALL)
    for name, episodes in zip(("train", "test"), sets, strict=True):
        assert torch.equal(episodes.frames, torch.from_numpy(played[name].frames))
        assert torch.equal(episodes.actions, torch.from_numpy(played[name].actions).long())
    assert packed(played) == packed(played)


def test_observations_are_two_pictures_the_newer_first():
    frames = torch.from_numpy(invented()["train"].frames)
    episode, step = torch.tensor([[0, 2], [1, 1]]), torch.tensor([[0, 10], [3, 4]])
    seen = atari.observe(frames, episode, step)
    assert seen.shape == (2, 2, 6, 50, 50)
    for place in np.ndindex(2, 2):
        e, t = int(episode[place]), int(step[place])
        assert torch.equal(seen[place][:3], frames[e, t + 1] / 255)
        assert torch.equal(seen[place][3:], frames[e, t] / 255)
    mapped = torch.func.vmap(atari.observe, in_dims=(None, 0, 0))(frames, episode, step)
    assert torch.equal(mapped, seen)


def test_the_user_s_folder_comes_first(cache, packed, tmp_path, monkeypatch):
    mine, kept = invented(), invented()
    put(cache, packed(kept))
    for place in ("given", "given/atari"):
        path = put(tmp_path / place, packed(mine))
        monkeypatch.setenv("NPS_DATA", str(tmp_path / "given"))
        assert torch.equal(
            atari.load("pong", SMALL).test.frames, torch.from_numpy(mine["test"].frames)
        )
        path.unlink()
    assert torch.equal(atari.load("pong", SMALL).test.frames, torch.from_numpy(kept["test"].frames))


def test_the_file_tells_how_it_was_made(packed):
    with np.load(io.BytesIO(packed(invented())), allow_pickle=False) as archive:
        meta = json.loads(archive["meta"].tobytes())
    assert meta.pop("format") == 1
    assert set(meta.pop("made_with")) == {"nps", "ale-py", "numpy"}
    assert meta == described("pong", SMALL)
    assert (meta["rows"], meta["warm_up"], meta["seed"], meta["train"]) == ([35, 190], 58, 7, 3)


def rewritten(data, **changes):
    """The file with other arrays or other metadata, itself whole."""
    with np.load(io.BytesIO(data)) as archive:
        arrays = dict(archive)
    meta = json.loads(arrays["meta"].tobytes())
    for name, value in changes.items():
        if name in arrays:
            arrays[name] = value
        else:
            meta[name] = value
    arrays["meta"] = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def with_meta(data, text):
    """The file with other text in the place of its metadata."""
    with np.load(io.BytesIO(data)) as archive:
        arrays = {**archive, "meta": np.frombuffer(text, np.uint8)}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def with_member(data, name):
    """The file with a member that is no array."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(buffer, "w") as new:
        for member in old.namelist():
            new.writestr(member, b"no array" if member == f"{name}.npy" else old.read(member))
    return buffer.getvalue()


def array_alone():
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(3))
    return buffer.getvalue()


def flipped(data):
    """One bit of the packed pictures is another."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        member = archive.getinfo("train_frames.npy")
    at = member.header_offset + member.compress_size // 2
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


BROKEN = {
    "truncated": (lambda data: data[:-100], "truncated, or not a .npz file"),
    "half": (lambda data: data[: len(data) // 2], "truncated, or not a .npz file"),
    "empty": (lambda data: b"", "truncated, or not a .npz file"),
    "another": (lambda data: b"<html>please log in</html>", "truncated, or not a .npz file"),
    "npy": (lambda data: array_alone(), "truncated, or not a .npz file"),
    "list": (lambda data: with_meta(data, b"[1, 2]"), "meta: got list, expected a JSON object"),
    "null": (lambda data: with_meta(data, b"null"), "meta: got NoneType, expected a JSON object"),
    "number": (lambda data: with_meta(data, b"7"), "meta: got int, expected a JSON object"),
    "no JSON": (lambda data: with_meta(data, b"{"), "truncated or damaged"),
    "no meta": (lambda data: with_member(data, "meta"), "meta: not in numpy's format"),
    "no frames": (
        lambda data: with_member(data, "train_frames"),
        "train_frames: not in numpy's format",
    ),
    "floats": (
        lambda data: rewritten(data, test_frames=np.zeros((2, 12, 3, 50, 50))),
        "test: float64 of shape (2, 12, 3, 50, 50), expected",
    ),
    "flipped": (flipped, "truncated or damaged"),
    "format": (lambda data: rewritten(data, format=2), "format 2, this nps reads 1"),
    "game": (lambda data: rewritten(data, game="qbert"), "game qbert, expected pong"),
    "seed": (lambda data: rewritten(data, seed=0), "seed 0, expected 7"),
    "episodes": (lambda data: rewritten(data, train=9), "train 9, expected 3"),
    "frameskip": (lambda data: rewritten(data, frameskip=3), "frameskip 3, expected 4"),
    "rows": (lambda data: rewritten(data, rows=[0, 210]), "rows 0, 210, expected 35, 190"),
    "shape": (
        lambda data: rewritten(data, train_actions=np.zeros((3, 9), np.uint8)),
        "train: uint8 of shape (3, 9), expected (3, 10)",
    ),
    "frames": (
        lambda data: rewritten(data, test_frames=np.zeros((2, 12, 3, 49, 50), np.uint8)),
        "test: uint8 of shape (2, 12, 3, 49, 50), expected (2, 12, 3, 50, 50)",
    ),
    "action": (
        lambda data: rewritten(data, test_actions=np.full((2, 10), 6, np.uint8)),
        "test: action 6",
    ),
    "pickle": (
        lambda data: rewritten(data, test_actions=np.array([{}], object)),
        "truncated or damaged",
    ),
}


@pytest.mark.parametrize(("spoil", "why"), BROKEN.values(), ids=BROKEN)
def test_other_files_are_refused_in_one_line(cache, packed, tmp_path, monkeypatch, spoil, why):
    (tmp_path / "given").mkdir()
    monkeypatch.setenv("NPS_DATA", str(tmp_path / "given"))
    path = put(cache, spoil(packed(invented())))
    with pytest.raises(UserError) as error:
        atari.load("pong", SMALL)
    message = str(error.value)
    assert f"{path}: " in message
    assert why in message
    assert f"not in {tmp_path / 'given'}; " in message
    assert "`nps data atari --game pong --episodes 3 --test-episodes 2 --seed 7`" in message
    assert "\n" not in message


def test_nothing_there_and_names_that_are_not(cache):
    with pytest.raises(UserError, match=r"not in .*cache/atari\); .*`nps data atari --game qbert`"):
        atari.load("qbert")
    with pytest.raises(ValueError, match="game: got 'pang', expected one of pong, space_invaders,"):
        atari.load("pang")
    with pytest.raises(ValueError, match="test: got 0, expected at least 1"):
        Settings(test=0)
    with pytest.raises(ValueError, match="seed: got -1"):
        Settings(seed=-1)


def test_a_file_of_space_invaders_from_before_is_not_used(cache, packed):
    """It had a frameskip of 4: refused by all that read or make it, and kept."""
    meta = described("space_invaders", SMALL)
    assert (meta["frameskip"], described("pong", SMALL)["frameskip"]) == (3, 4)
    old = rewritten(packed(invented(), game="space_invaders"), frameskip=4)
    path = put(cache, old, "space_invaders")
    with pytest.raises(UserError, match=r"frameskip 4, expected 3\); make it with `nps data atari"):
        atari.load("space_invaders", SMALL)
    _, err = call("data", "atari", "--game=space_invaders", *FLAGS, code=2)
    assert err == f"nps: error: {path}: frameskip 4, expected 3; move it away first\n"
    assert path.read_bytes() == old
    assert world(GAMES["space_invaders"]) == "frameskip 3, warm-up 50, rows 30 to 200"
    assert world(FIRST_GAMES["space_invaders"]) == "frameskip 4, warm-up 50, rows 30 to 200"
    assert all(FIRST_GAMES[game] == GAMES[game] for game in GAMES if game != "space_invaders")


# -- the command --------------------------------------------------------------------------------


def test_data_command_plays_once_and_carries(cache, tmp_path, monkeypatch):
    pytest.importorskip("ale_py")
    out, err = call("data", "atari", "--game=pong", "--workers=1", *FLAGS)
    path = cache / "pong.npz"
    size = f"{path.stat().st_size:,} bytes"
    assert (out, err) == (f"{path}: {size}, played\n", "")
    before = path.read_bytes()
    assert call("data", "atari", "--game=pong", *FLAGS)[0] == f"{path}: {size}, already there\n"
    stick = tmp_path / "a/stick"
    out, _ = call("data", "atari", "--game=pong", *FLAGS, "--to", str(stick))
    assert f"{stick}/pong.npz: {size}, from {path}\n" in out
    assert [file.read_bytes() for file in stick.iterdir()] == [before]
    monkeypatch.setenv("NPS_CACHE", str(tmp_path / "empty"))
    out, _ = call("data", "atari", "--game=pong", *FLAGS, "--workers=2", "--to", str(tmp_path))
    assert "played" in out
    assert (tmp_path / "pong.npz").read_bytes() == before
    monkeypatch.setenv("NPS_CACHE", str(cache.parent))
    _, err = call("data", "atari", "--game=pong", code=2)
    assert err == f"nps: error: {path}: train 3, expected 1000; move it away first\n"
    assert path.read_bytes() == before
    sets = atari.load("pong", SMALL)
    expected = atari_play.play(atari_play.Emulator("pong"), "pong", (7, 1, 1))
    assert torch.equal(sets.test.frames[1], torch.from_numpy(expected.frames))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--game", "pang"], "pang"),
        (["--episodes", "0"], "train: got 0, expected at least 1 episode"),
        (["--workers", "-1"], "--workers: got -1"),
        (["--seed", "4294967296"], "seed: got 4294967296"),
        (["--data", "nowhere"], "--data: no such folder"),
    ],
)
def test_mistakes_are_one_line(cache, flags, message):
    _, err = call("data", "atari", *flags, code=2)
    assert message in err
    assert err.count("\n") == 1
    assert not cache.exists()


def test_a_folder_that_cannot_be_is_reported(tmp_path):
    pytest.importorskip("ale_py")
    (tmp_path / "file").write_text("")
    _, err = call("data", "atari", "--to", str(tmp_path / "file/x"), code=2)
    assert err == f"nps: error: cannot write to {tmp_path / 'file/x'}: Not a directory\n"


def test_without_the_emulator(cache, monkeypatch):
    monkeypatch.setitem(sys.modules, "ale_py", None)
    _, err = call("data", "atari", code=2)
    assert err == (
        "nps: error: Atari games need the extra: pip install 'neural-production-systems[atari]' "
        "(in a clone: pip install -e '.[atari]')\n"
    )
    assert not cache.exists()


def test_help_has_examples():
    out, _ = call("data", "atari", "--help")
    assert "nps data atari --game pong --workers 4" in out
    assert "--test-episodes" in out


def hear_ctrl_c() -> None:
    """What a shell begins in the background is deaf to it, and so are all that it begins."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "killed"])
def test_a_stop_leaves_no_file_and_no_process(cache, how):
    pytest.importorskip("ale_py")
    command = [sys.executable, "-m", "nps", "data", "atari", "--game=pong", "--workers=2"]
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=hear_ctrl_c,
    )
    wait_until(cache.exists)  # made when the game begins
    time.sleep(1)
    if how == signal.SIGINT:
        os.killpg(process.pid, how)  # as a terminal does
    else:
        process.kill()
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == ((130, "") if how == signal.SIGINT else (-how, err))
    assert list(cache.iterdir()) == []
    wait_until(lambda: not alive(process.pid))


def wait_until(holds, seconds=60):
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def alive(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
