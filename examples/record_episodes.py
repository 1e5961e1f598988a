"""Record episodes of a Gymnasium environment under random actions, for `nps.worlds.custom`.

Images are the observations where these are images, else what the environment renders. Run it:

    pip install "gymnasium[classic-control]"
    python examples/record_episodes.py CartPole-v1 --episodes 100 --size 50 --out cartpole.npz
"""

import argparse
import contextlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from nps.errors import UserError
from nps.files import replace_file
from nps.worlds.custom import SUFFIXES, load_episodes


def make(name: str) -> Any:
    """The environment, with a camera if its observations are no images."""
    import gymnasium

    with contextlib.suppress(ImportError):
        import ale_py  # noqa: F401  (makes its games known, such as ALE/Pong-v5)
    env = gymnasium.make(name)
    if len(env.observation_space.shape or ()) == 3:
        return env
    env.close()
    return gymnasium.make(name, render_mode="rgb_array")


def frame(env: Any, obs: Any, size: int | None) -> np.ndarray:
    """What a camera would see, (H, W, C) in bytes."""
    image = obs if np.ndim(obs) == 3 else env.render()
    if image is None or np.ndim(image) != 3 or image.dtype != np.uint8:
        raise UserError("env: neither its observations nor its render() are images of bytes")
    if size is None:
        return np.array(image)  # some environments draw into the same array again
    planes = torch.from_numpy(np.array(image)).permute(2, 0, 1)[None].float()
    small = functional.interpolate(planes, (size, size), mode="bilinear", antialias=True)
    return small[0].permute(1, 2, 0).round().clamp(0, 255).byte().numpy()


def row(space: Any, action: Any) -> Any:
    """Discrete actions count from 0; continuous ones are a row of numbers."""
    if np.issubdtype(space.dtype, np.floating):
        return np.asarray(action, np.float32).ravel()
    if space.shape:
        raise UserError(f"env: its actions are {space}, expected Discrete or Box")
    return np.int64(action) - getattr(space, "start", 0)


def record(
    env: Any, episodes: int, steps: int, seed: int = 0, size: int | None = None
) -> dict[str, np.ndarray]:
    """The three arrays, a row a frame; an episode is cut after `steps` actions."""
    env.action_space.seed(seed)
    obs, actions, ends = [], [], []
    for episode in range(episodes):
        seen, _ = env.reset(seed=seed if episode == 0 else None)
        obs.append(frame(env, seen, size))
        for _ in range(steps):
            action = env.action_space.sample()
            seen, _, terminated, truncated, _ = env.step(action)
            obs.append(frame(env, seen, size))
            actions.append(row(env.action_space, action))
            ends.append(False)
            if terminated or truncated:
                break
        actions.append(actions[-1])  # leads nowhere: nothing is seen after the last frame
        ends.append(True)
    return {"obs": np.stack(obs), "action": np.stack(actions), "episode_end": np.array(ends)}


def save(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """As the suffix says; the file is whole or not there."""
    packed = io.BytesIO()
    if path.suffix == ".npz":
        np.savez_compressed(packed, **arrays)
    else:
        import h5py

        with h5py.File(packed, "w") as file:
            for key, array in arrays.items():
                file.create_dataset(key, data=array, compression="gzip")
    replace_file(path, packed.getvalue())


def positive(text: str) -> int:
    if int(text) < 1:
        raise ValueError
    return int(text)


def output(text: str) -> Path:
    path = Path(text)
    if path.suffix not in SUFFIXES or not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text}: expected {', '.join(SUFFIXES)} in a folder")
    return path


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Record episodes under random actions.")
    parser.add_argument("env", help="a name that gymnasium.make knows, such as CartPole-v1")
    parser.add_argument("--out", type=output, required=True, help="the file to write: .npz or .h5")
    parser.add_argument("--episodes", type=positive, default=100)
    parser.add_argument("--steps", type=positive, default=100, help="cut episodes after so many")
    parser.add_argument("--size", type=positive, help="make images square, with this side")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    try:
        env = make(given.env)
        frame(env, env.reset()[0], given.size)  # many need a package only now
        if given.out.suffix != ".npz":
            import h5py  # noqa: F401  (to find out now, not when everything is recorded)
    except Exception as error:  # not installed, no such name, something that it needs is missing
        parser.error(f"{given.env}: {' '.join(str(error).split())}")
    try:
        save(given.out, record(env, given.episodes, given.steps, given.seed, given.size))
        episodes = load_episodes(given.out)
    except (UserError, OSError) as error:
        parser.error(str(error))
    finally:
        env.close()
    print(
        f"{given.out}: {int(episodes.episode.max()) + 1} episodes, {len(episodes.windows())} "
        f"transitions, images {tuple(episodes.obs.shape[1:])}"
    )


if __name__ == "__main__":
    main()
