"""Base policies and environments by name, as the command line takes them; clear errors for both.

A file of Stable-Baselines3, SBX or windward, a policy that comes with the package, or code.
"""

import importlib
import json
import sys
from contextlib import closing
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import gymnasium as gym
import numpy as np

from windward import files, policies
from windward.adapt.config import logits_from
from windward.agents import D4PG
from windward.agents.checkpoints import AGENT, CHECKPOINT
from windward.policies.sb3 import SB3, SBX, library_of
from windward.policies.shipped import KIND as BASE
from windward.policies.shipped import SHIPPED
from windward.simulators.learned_files import load_simulator

KINDS = (
    "a .zip of Stable-Baselines3 or SBX, an .npz of windward, 'shipped' (or 'shipped:ID'), or "
    "module:function"
)
CONTRIB = "sb3_contrib"
CLASSES = {
    "crossq": "CrossQ", "dqn": "DQN", "ppo": "PPO", "qrdqn": "QRDQN", "sac": "SAC", "td3": "TD3",
    "tqc": "TQC",
}  # fmt: skip
"""folder of a policy's class -> algorithm; DDPG's is td3's, and so are its policy and critic"""


def make_env(env_id: str, max_steps: int | None = None) -> gym.Env:
    """The environment of that id; an error of Gymnasium's in one line."""
    try:
        return gym.make(env_id, max_episode_steps=max_steps)
    except (gym.error.Error, ImportError) as error:
        raise ValueError(str(error)) from error


def load_model(
    name: str, env_id: str, algo: str | None = None, vec_normalize: Path | None = None
) -> Any:
    """The base policy that a name means.

    A .zip of Stable-Baselines3 or SBX is loaded by their own code, which unpickles: load files that
    you trust. windward's own files hold no code. `algo` names the class of a .zip where the file
    does not tell it; `vec_normalize` is the file of VecNormalize's statistics, a pickle too.
    """
    path = Path(name)
    if path.suffix != ".zip" and (algo is not None or vec_normalize is not None):
        raise ValueError(f"algo and vec_normalize are for a .zip of SB3 or SBX; got {name!r}")
    if name == "shipped" or name.startswith("shipped:"):
        return _shipped(name.partition(":")[2] or env_id)
    if path.suffix in (".zip", ".npz") and not path.is_file():
        raise ValueError(f"there is no file {name!r}")
    if path.suffix == ".npz":
        return _own(path, env_id)
    if path.suffix == ".zip":
        return _zip(path, env_id, algo, vec_normalize)
    if path.exists() or ":" not in name:
        raise ValueError(f"a model is {KINDS}; got {name!r}")
    return load_object(name)


def _shipped(env_id: str) -> policies.BasePolicy:
    if env_id not in SHIPPED:
        raise ValueError(
            f"no policy for {env_id} comes with windward; there are shipped:"
            f"{', shipped:'.join(SHIPPED)}"
        )
    return policies.load(env_id)


def _own(path: Path, env_id: str) -> Any:
    kind = files.read(path, AGENT, CHECKPOINT, BASE)[1]["kind"]
    return policies.load_base(path) if kind == BASE else D4PG.load(path, env_id)


def load_object(name: str) -> Any:
    """What module:function names; modules of the folder that the command is given in count too."""
    module, _, path = name.partition(":")
    before = list(sys.path)
    sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module)
    except Exception as error:  # the user's module may fail in any way
        raise ValueError(f"{module!r} (of {name!r}) cannot be imported: {error!r}") from error
    finally:
        sys.path[:] = before
    for part in path.split("."):
        if not hasattr(found, part):
            raise ValueError(f"{module!r} has no {path!r} (of {name!r})")
        found = getattr(found, part)
    return found


def load_simulator_of(name: str, env_id: str) -> Any:
    """A simulator that a user names: a file of `save_simulator`, or module:object."""
    if ":" in name and not Path(name).exists():
        return load_object(name)
    if not Path(name).exists():
        raise ValueError(f"there is no file {name!r}; or name an object, as module:object")
    with closing(make_env(env_id)) as env:
        return load_simulator(name, env)


def class_of(path: Path, algo: str | None = None) -> tuple[str, str]:
    """(library, class) of a .zip, read from its JSON alone: nothing in the file is run."""
    try:
        with ZipFile(path) as archive:
            names, data = archive.namelist(), json.loads(archive.read("data"))
        module = str(data["policy_class"].get("__module__", ""))
    except (BadZipFile, KeyError, ValueError, AttributeError, TypeError, OSError) as error:
        raise ValueError(
            f"{str(path)!r} is damaged or not a model of Stable-Baselines3 or SBX: {error}"
        ) from error
    library, _, rest = module.partition(".")
    folder = rest.partition(".")[0]
    if library not in (SB3, SBX, CONTRIB):  # a policy class of the user's own
        library, folder = SB3 if "policy.pth" in names else SBX, ""
    if algo is not None:
        given, _, cls = algo.rpartition(".")
        return given or library, cls
    if library == SB3 and folder == "common":
        return library, "PPO" if "n_epochs" in data else "A2C"
    if folder not in CLASSES:
        raise ValueError(
            f"{str(path)!r} does not tell its algorithm (its policy is of {module!r}): say which "
            "with --algo, for instance PPO or sbx.SAC"
        )
    return library, CLASSES[folder]


def _zip(path: Path, env_id: str, algo: str | None, vec_normalize: Path | None) -> Any:
    library, name = class_of(path, algo)
    try:
        module = importlib.import_module(library)
    except ImportError as error:
        raise ValueError(
            f"{str(path)!r} needs {library} ({error}): pip install 'windward[sb3]'"
        ) from error
    cls = getattr(module, name, None)
    if not callable(getattr(cls, "load", None)):
        raise ValueError(f"{library} has no algorithm {name!r}: see --algo")
    assert cls is not None
    try:
        model = cls.load(path, device="cpu")
    except Exception as error:  # what unpickling raises is anyone's guess
        raise ValueError(
            f"{library}.{name} cannot load {str(path)!r}: {error!r}; if it is of another "
            "algorithm, say which with --algo"
        ) from error
    if vec_normalize is not None:
        _normalise(model, env_id, vec_normalize)
    return model


def _normalise(model: Any, env_id: str, path: Path) -> None:
    """Gives a model the statistics that it was trained with."""
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    if not path.is_file():
        raise ValueError(f"there is no file {str(path)!r}")
    try:
        model.set_env(VecNormalize.load(str(path), DummyVecEnv([lambda: make_env(env_id)])))
    except Exception as error:  # what unpickling raises is anyone's guess
        raise ValueError(f"{str(path)!r} is no VecNormalize for {env_id}: {error!r}") from error


def check_fit(model: Any, env: gym.Env, name: str) -> None:
    """Refuses a policy whose spaces are not the environment's, or that fails at the start."""
    theirs, ours = getattr(model, "observation_space", None), env.observation_space
    if theirs is not None and len(ours.shape or ()) != 3 and theirs.shape != ours.shape:
        raise ValueError(
            f"{name} is of another environment: it takes observations of shape {theirs.shape}, "
            f"here they have {ours.shape}"
        )
    actions = getattr(model, "action_space", None)
    if actions is not None and not _same(actions, env.action_space):
        raise ValueError(
            f"{name} is of another environment: its actions are {actions}, here they are "
            f"{env.action_space}"
        )
    act = policies.predictor(model, env.action_space)
    x, _ = env.reset(seed=0)
    try:
        act(np.asarray(x)[None])
    except ValueError as error:
        raise ValueError(f"{name} does not fit this environment: {error}") from error
    except Exception as error:  # the user's policy may fail in any way
        raise ValueError(f"{name} fails on the first observation, {x!r}: {error!r}") from error


def _same(a: gym.Space, b: gym.Space) -> bool:
    if isinstance(a, gym.spaces.Box) and isinstance(b, gym.spaces.Box):
        near = a.shape == b.shape and np.allclose(a.low, b.low) and np.allclose(a.high, b.high)
        return bool(near)
    return a == b


def logits_for(model: Any, given: Any, name: str) -> Any:
    """Logits for discrete actions: `given`, or the model's own."""
    # A plain function is a policy here, so it is not taken for logits.
    readable = callable(getattr(model, "logits", None)) or library_of(model) is not None
    if given is None and not readable:
        raise ValueError(
            f"{name} has no logits, through which discrete actions are corrected: give it a method "
            "logits on rows of observations, or say --logits module:function"
        )
    return logits_from(model if given is None else given)
