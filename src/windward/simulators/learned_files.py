"""Learned simulators in files: what took a minute to learn is loaded in no time."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from windward import checks, files
from windward.policies.actions import ActionCode
from windward.simulators.fitting import spaces_of
from windward.simulators.learned import EndFunction, Fit, LearnedSimulator, Networks, RewardFunction

KIND = "windward.LearnedSimulator"
PLAIN = ("mean", "spread", "low", "high", "linear", "size", "circles")
FUNCTIONS = ("reward", "terminated")


def save_simulator(simulator: LearnedSimulator, path: str | Path) -> None:
    """Writes what was learned and how good it is; no step that it was learned from."""
    networks = simulator.networks
    arrays = {name: getattr(networks, name) for name in PLAIN}
    if networks.added is not None:
        arrays["added"] = networks.added
    for group, params in (("net", networks.params), ("ends", networks.ends or {})):
        arrays |= {f"{group}/{name}": np.asarray(each) for name, each in params.items()}
    fit = {
        name: each.tolist() if isinstance(each, np.ndarray) else each
        for name, each in simulator.fit._asdict().items()
    }
    given = (simulator.reward_function, simulator.end_function)
    functions = [name for name, each in zip(FUNCTIONS, given, strict=True) if each is not None]
    files.write(path, arrays, {"kind": KIND, "fit": fit, "functions": functions})


def load_simulator(
    path: str | Path,
    env: str | gym.Env,
    *,
    reward: RewardFunction | None = None,
    terminated: EndFunction | None = None,
) -> LearnedSimulator:
    """A simulator as it was saved, for environments with the spaces of `env`.

    `reward` and `terminated` are needed again where it was fitted with them: files hold no code.
    """
    arrays, header = files.read(path, KIND)
    functions = {"reward": reward, "terminated": terminated}
    for name, function in functions.items():
        if (function is None) == (name in header["functions"]):
            said = "with" if name in header["functions"] else "without"
            raise ValueError(
                f"{str(path)!r} was fitted {said} {name}=, and its error is of that: load it so"
            )
    spaces = spaces_of(gym.make(env) if isinstance(env, str) else env)
    params, ends = (_group(arrays, name) for name in ("net", "ends"))
    networks = Networks(
        **{name: arrays[name] for name in PLAIN}, params=params, ends=ends or None,
        added=arrays.get("added"),
    )  # fmt: skip
    _refuse(networks, spaces, str(path))
    numbers: dict[str, Any] = {
        name: np.array(each) if isinstance(each, list) else each
        for name, each in header["fit"].items()
    }
    numbers.setdefault("own", numbers["error"])  # files of 0.4 have none
    return LearnedSimulator(networks, *spaces, Fit(**numbers), reward, terminated)


def _group(arrays: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    prefix = name + "/"
    return {key[len(prefix) :]: each for key, each in arrays.items() if key.startswith(prefix)}


def _refuse(networks: Networks, spaces: tuple[gym.spaces.Box, gym.Space], path: str) -> None:
    """What is of other spaces, or damaged."""
    d_x, d_u = int(np.prod(spaces[0].shape)), ActionCode(spaces[1]).size
    there = len(networks.mean), len(networks.linear) - len(networks.mean) - 1
    if there != (d_x, d_u):
        raise ValueError(
            f"{path!r} is of observations with {there[0]} numbers and actions with {there[1]}; "
            f"here they have {d_x} and {d_u}"
        )
    last = f"w{sum(name.startswith('w') for name in networks.params) - 1}"
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("mean", "spread", "low", "high"), (d_x,))
    shapes |= {"linear": (d_x + d_u + 1, d_x + 1), "size": (d_x + 1,)}
    if networks.added is not None:
        shapes["added"] = (2 * d_x + d_u + 1, d_x)
    for name, shape in shapes.items():
        array = checks.finite_array(f"{name!r} of {path!r}", getattr(networks, name))
        checks.shape(f"{name!r} of {path!r}", array, shape)
    if last not in networks.params or networks.params[last].shape[-1] != d_x + 1:
        raise ValueError(f"{path!r} is damaged: its networks do not fit together")
