"""D4PG in files: an agent's networks, and everything that going on with learning needs."""

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from windward import files
from windward.agents.replay import Replay
from windward.agents.robust import Robust, as_robust
from windward.agents.settings import Settings
from windward.agents.training import Training, as_numpy
from windward.policies.features import Features, fingerprint

AGENT, CHECKPOINT = "windward.D4PG", "windward.D4PG checkpoint"
REPLAY = "replay/"


class Identity(NamedTuple):
    """What a file must share with the agent that reads it."""

    env_id: str | None
    observation_space: gym.spaces.Box
    action_space: gym.spaces.Box
    features: Features | None


def _header(kind: str, identity: Identity, training: Training) -> dict[str, Any]:
    return {
        "kind": kind,
        "env": identity.env_id,
        "seed": training.seed,
        "settings": plain(training.settings),
        "evaluation": training.evaluation,
        "features": None if identity.features is None else identity.features.name,
        "features_at": None
        if identity.features is None
        else fingerprint(identity.features, identity.observation_space),
        "observation": list(identity.observation_space.shape),
        "action_low": identity.action_space.low.tolist(),
        "action_high": identity.action_space.high.tolist(),
        "timesteps": training.timesteps,
        "updates": training.learner.steps,
    }


def _learned(training: Training) -> dict[str, np.ndarray]:
    """Networks and optimisers, and those of the module."""
    arrays = files.flatten("learner", training.learner._replace(steps=0))
    return arrays if training.adaptation is None else arrays | training.adaptation.arrays()


def save(path: str | Path, identity: Identity, training: Training) -> None:
    """Networks, optimisers, the module and settings; not the replay."""
    files.write(path, _learned(training), _header(AGENT, identity, training))


def settings_in(header: dict[str, Any]) -> dict[str, Any]:
    """The settings that a header holds, as arguments of `D4PG`."""
    found = dict(header["settings"])
    unknown = sorted(set(found) - {field.name for field in fields(Settings)})
    if unknown:
        raise ValueError(
            f"the file has settings that D4PG does not know ({', '.join(unknown)}): it was written "
            "by another version"
        )
    return found | {
        "widths": tuple(found.get("widths", Settings.widths)),
        "robust": as_robust(found.get("robust")),
    }


def module_for(header: dict[str, Any], robust: Any, path: str | Path) -> Robust:
    """Settings of another module for the agent of a file, which must have the values for it."""
    found = as_robust(robust)
    if found.needs_head and header.get("features") is None:
        raise ValueError(
            f"{str(path)!r} has no vector head for pd2: take form='critic_units', pd1 or pd3, or "
            "train it with features='identity'"
        )
    return found


def adopt(
    path: str | Path,
    arrays: dict[str, np.ndarray],
    header: dict[str, Any],
    identity: Identity,
    training: Training,
) -> None:
    """Takes the networks of a file; refuses one of an agent for other spaces.

    A module made as the one in the file goes on from there; any other begins anew.
    """
    own = _header("", identity, training)
    for name in ("observation", "action_low", "action_high", "features", "features_at"):
        if header.get(name) != own[name]:
            raise ValueError(
                f"{str(path)!r} is of another environment or agent ({header['env']}): its {name} "
                f"is {header.get(name)}, here it is {own[name]}"
            )
    tree = files.unflatten("learner", training.learner._replace(steps=0), arrays)
    training.learner = tree._replace(steps=header["updates"])
    training.acting = as_numpy(training.learner.policy)
    training.timesteps = header["timesteps"]
    same = as_robust(header["settings"].get("robust")) == training.settings.robust
    if training.adaptation is not None and same:
        training.adaptation.restore(arrays)


def write(path: Path, identity: Identity, training: Training) -> None:
    """Everything that going on needs."""
    assert training.replay is not None
    arrays = _learned(training)
    arrays |= {REPLAY + name: each for name, each in training.replay.arrays().items()}
    generators = [each.bit_generator.state for each in (training.sampling, training.exploring)]
    header = _header(CHECKPOINT, identity, training) | {
        "generators": json.dumps(generators),
        "owed": training.owed,
        "best": training.best,
        "log": training.log.rows,
        "returns": list(training.recent.returns),
        "discounted": list(training.recent.discounted),
        "losses": training.losses,
    }
    files.write(path, arrays, header)


def restore(path: Path, identity: Identity, training: Training, replay: Replay) -> None:
    """Goes back to a checkpoint; refuses one of a run with other settings."""
    arrays, header = files.read(path, CHECKPOINT)
    if None not in (header["env"], identity.env_id) and header["env"] != identity.env_id:
        raise ValueError(
            f"{path.parent} holds a run of another environment, {header['env']}; this one is "
            f"{identity.env_id}: give another folder"
        )
    refuse_other(path.parent, header, training.settings, training.seed, training.evaluation)
    adopt(path, arrays, header, identity, training)
    replay.restore(
        {name[len(REPLAY) :]: each for name, each in arrays.items() if name.startswith(REPLAY)}
    )
    training.replay = replay
    states = json.loads(header["generators"])
    for generator, state in zip((training.sampling, training.exploring), states, strict=True):
        generator.bit_generator.state = state
    training.owed, training.best = header["owed"], header["best"]
    training.log.rows, training.losses = header["log"], header["losses"]
    training.recent.returns.extend(header["returns"])
    training.recent.discounted.extend(header["discounted"])


def refuse_other(
    folder: Path,
    header: Mapping[str, Any],
    settings: Settings,
    seed: int,
    evaluation: Mapping[str, int],
) -> None:
    """Refuses the run in a folder, by a header of its files, if it was made with other settings.

    Evaluations are settings too: updates are waited for before each, and the best is saved.
    """
    ours = {**_flat(plain(settings)), **evaluation, "seed": seed}
    # Files of earlier versions do not tell how they were evaluated.
    told = header.get("evaluation", evaluation)
    theirs = {**_flat(header["settings"]), **told, "seed": header["seed"]}
    changed = [
        f"{name} was {theirs.get(name)}, now {ours.get(name)}"
        for name in {**ours, **theirs}
        if theirs.get(name) != ours.get(name)
    ]
    if changed:
        raise ValueError(
            f"{folder} holds a run with other settings ({'; '.join(changed)}): give another "
            "folder, or the same settings to go on"
        )


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of D4PG, with those of its module beside them."""
    own = {name: each for name, each in settings.items() if name != "robust"}
    return own | {f"robust.{name}": each for name, each in settings.get("robust", {}).items()}


def plain(settings: Settings) -> dict[str, Any]:
    """Settings as JSON gives them back; of a module only where there is one."""
    found: dict[str, Any] = json.loads(json.dumps(asdict(settings)))
    if not settings.robust.on:
        del found["robust"]
    return found
