"""Recorded transitions: episodes in memory, and in files of arrays and JSON."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from windward import files

KIND = "windward.log"
VERSION = 1
SHORTEST = 10
"""steps below which nothing can be said"""
ARRAYS = ("observations", "actions", "rewards", "lengths", "terminated", "truncated")
"""in the file of a log, beside "states" where there are any"""


class Episode(NamedTuple):
    """One episode, or the part of one that was recorded; T steps have T + 1 observations."""

    observations: np.ndarray  # (T + 1, ...)
    actions: np.ndarray  # (T, ...) as executed
    rewards: np.ndarray  # (T,)
    terminated: bool
    truncated: bool
    states: np.ndarray | None = None  # (T + 1, d_x) where the recorder could read them

    @property
    def steps(self) -> int:
        """T."""
        return len(self.actions)


class Log(NamedTuple):
    """Episodes in the order in which they were recorded, and what is known of their source."""

    episodes: tuple[Episode, ...]
    about: Mapping[str, Any]
    """"env": the environment's id, if it has one"""

    @property
    def steps(self) -> int:
        """Of all episodes."""
        return sum(each.steps for each in self.episodes)


def log_of(arrays: Mapping[str, Any], about: Mapping[str, Any] | None = None) -> Log:
    """Makes a log from arrays of one's own, such as those of a real robot.

    Args:
        arrays: "observations" or "states" or both, (N, ...), one for each moment; "actions", a row
            for the step that begins at each moment; "ends", (N,) flags, True at the last moment of
            each episode (its action is not looked at); "rewards" (N,) if there are any. Where
            steps are missing, mark an end too: what follows it is taken for another episode.
        about: what else to keep, such as {"env": "Hopper-v5"}.

    Returns:
        The log.

    Raises:
        ValueError: an array that is missing, has other rows, or holds no finite numbers.

    >>> x = np.linspace(0.0, 1.0, 12)[:, None]
    >>> ends = np.arange(12) == 11
    >>> log_of({"observations": x, "actions": x, "ends": ends}).steps
    11
    """
    if not isinstance(arrays, Mapping):
        raise ValueError(
            f"a log is made of arrays by name (observations, actions, ends); got "
            f"{type(arrays).__name__}"
        )
    if "observations" not in arrays and "states" not in arrays:
        raise ValueError("the log has neither 'observations' nor 'states'")
    for name in ("actions", "ends"):
        if name not in arrays:
            why = ": mark the last moment of each episode" if name == "ends" else ""
            raise ValueError(f"the log has no {name!r}{why}")
    found = {name: _numbers(name, arrays[name]) for name in arrays}
    n = len(found["actions"])
    for name, array in found.items():
        if len(array) != n:
            raise ValueError(
                f"the log's {name!r} has {len(array)} rows and its 'actions' {n}: a row of each "
                "for each moment"
            )
    ends = _column("ends", found["ends"]) != 0
    if not ends.any() or not ends[-1]:
        raise ValueError(
            "the log's last episode is not marked: 'ends' must be True at the last moment of each"
        )
    rewards = _column("rewards", found.get("rewards", np.zeros(n)))
    last = np.flatnonzero(ends)
    episodes = []
    for start, end in zip(np.r_[0, last[:-1] + 1], last, strict=True):
        if end == start:
            continue
        moments, steps = slice(start, end + 1), slice(start, end)
        states = found["states"][moments] if "states" in found else None
        seen = found["observations"][moments] if "observations" in found else states
        assert seen is not None
        episodes.append(Episode(seen, found["actions"][steps], rewards[steps], False, True, states))
    return _checked(Log(tuple(episodes), dict(about or {})))


def _column(name: str, array: np.ndarray) -> np.ndarray:
    """One number for each moment."""
    if array.shape not in ((len(array),), (len(array), 1)):
        raise ValueError(f"the log's {name!r} must be one for each moment; got {array.shape}")
    if np.isnan(array).any() and name == "ends":
        raise ValueError(f"the log's 'ends' are flags; row {int(np.isnan(array).argmax())} is NaN")
    return array.reshape(len(array))


def _numbers(name: str, array: Any) -> np.ndarray:
    """An array of numbers; which are not finite is said later, with the episode and step."""
    try:
        found = np.asarray(array)
    except ValueError as error:
        raise ValueError(f"the log's {name!r} must be rows of one shape: {error}") from error
    if found.dtype.kind not in "biuf" or not found.ndim:
        raise ValueError(f"the log's {name!r} must be rows of numbers; got {found.dtype}")
    return found


def _checked(log: Log) -> Log:
    """Refuses episodes that no diagnosis can read."""
    if not log.episodes:
        raise ValueError("the log has no episode")
    for number, episode in enumerate(log.episodes):
        for name in ("observations", "states"):
            array = getattr(episode, name)
            if array is not None and len(array) != episode.steps + 1:
                raise ValueError(
                    f"episode {number} of the log has {episode.steps} actions and {len(array)} "
                    f"{name}: there must be one more, for the moment after the last action"
                )
        for name in ("observations", "actions", "states"):
            array = getattr(episode, name)
            if array is None:
                continue
            bad = ~np.isfinite(np.asarray(array, dtype=np.float64)).reshape(len(array), -1).all(1)
            if bad.any():
                raise ValueError(
                    f"the log's {name} are not finite at step {int(bad.argmax())} of episode "
                    f"{number}: cut such steps out, and mark an end where they were"
                )
    if log.steps < SHORTEST:
        raise ValueError(
            f"the log has {log.steps} steps: record at least {SHORTEST}, better 100 or more"
        )
    return log


def save_log(log: Log, path: str | Path) -> None:
    """Writes a log as arrays and JSON; states only if all episodes have them.

    Args:
        log: one of `Recorder` or `log_of`.
        path: of the file; what is there is replaced.

    Raises:
        ValueError: a log without episodes, or a file that cannot be written.

    >>> import tempfile
    >>> x = np.zeros((12, 1))
    >>> log = log_of({"observations": x, "actions": x, "ends": np.arange(12) == 11})
    >>> save_log(log, Path(tempfile.mkdtemp()) / "flight.npz")
    """
    episodes = log.episodes
    if not episodes:
        raise ValueError("the log has no episode")
    try:
        json.dumps(dict(log.about))
    except TypeError as error:
        raise ValueError(f"what a log says about itself must go to JSON: {error}") from error
    arrays = {
        "observations": np.concatenate([each.observations for each in episodes]),
        "actions": np.concatenate([each.actions for each in episodes]),
        "rewards": np.concatenate([each.rewards for each in episodes]),
        "lengths": np.array([each.steps for each in episodes]),
        "terminated": np.array([each.terminated for each in episodes]),
        "truncated": np.array([each.truncated for each in episodes]),
    }
    if all(each.states is not None for each in episodes):
        arrays["states"] = np.concatenate([each.states for each in episodes])
    files.write(path, arrays, {"kind": KIND, "version": VERSION, "about": dict(log.about)})


def load_log(path: str | Path, *, limit: int = files.LIMIT) -> Log:
    """Loads a log from a file that `Recorder` or `save_log` wrote; runs no code.

    Args:
        path: of the file.
        limit: bytes that a compressed file may take unpacked.

    Returns:
        The log.

    Raises:
        ValueError: what is wrong with the file.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "flight.npz"
    >>> x = np.zeros((12, 1))
    >>> save_log(log_of({"observations": x, "actions": x, "ends": np.arange(12) == 11}), path)
    >>> load_log(path).steps
    11
    """
    try:
        arrays, header = files.read(path, KIND, names=(*ARRAYS, "states"), limit=limit)
    except files.Headerless as error:
        raise ValueError(
            f"{error}. If these are arrays of your own (observations or states, actions, ends): "
            f"windward.diagnose_log(dict(np.load({str(path)!r})), env)"
        ) from error
    check_version(path, "log", header["version"], VERSION)
    observations, actions, rewards, lengths, terminated, truncated = (
        _numbers(name, arrays[name]) for name in ARRAYS
    )
    if lengths.ndim != 1 or lengths.dtype.kind not in "iu" or (lengths < 1).any():
        raise ValueError(f"{str(path)!r} is damaged: its lengths of episodes are {lengths!r}")
    states = _numbers("states", arrays["states"]) if "states" in arrays else None
    steps = sum(lengths.tolist())  # Python's integers do not overflow
    moments = steps + len(lengths)
    wanted = {
        "actions": (actions, steps), "rewards": (rewards, steps),
        "observations": (observations, moments), "terminated": (terminated, len(lengths)),
        "truncated": (truncated, len(lengths)), "states": (states, moments),
    }  # fmt: skip
    for name, (array, count) in wanted.items():
        if array is not None and len(array) != count:
            raise ValueError(
                f"{str(path)!r} is damaged: {name} has {len(array)} rows where its episodes have "
                f"{count}"
            )
    for name, flat in (("rewards", rewards), ("terminated", terminated), ("truncated", truncated)):
        if flat.ndim != 1:
            raise ValueError(f"{str(path)!r} is damaged: {name} has shape {flat.shape}")
    episodes, step, moment = [], 0, 0
    for number, length in enumerate(lengths.tolist()):
        seen, taken = slice(moment, moment + length + 1), slice(step, step + length)
        episodes.append(
            Episode(
                observations[seen],
                actions[taken],
                rewards[taken],
                bool(terminated[number]),
                bool(truncated[number]),
                None if states is None else states[seen],
            )
        )
        step, moment = step + length, moment + length + 1
    about = header["about"]
    if not isinstance(about, dict):
        raise ValueError(f"{str(path)!r} is damaged: its header says {about!r} about itself")
    return _checked(Log(tuple(episodes), about))


def check_version(path: str | Path, what: str, found: Any, own: int) -> None:
    """Refuses files of another version, and says what to do."""
    if found == own:
        return
    newer = isinstance(found, int) and not isinstance(found, bool) and found > own
    todo = "update windward" if newer else f"make the {what} again"
    raise ValueError(
        f"{str(path)!r} is a {what} of version {found!r}, and this windward reads version {own}: "
        f"{todo}"
    )


def check_fits(log: Log, env: gym.Env, d_x: int | None) -> None:
    """Refuses a log of another environment, and one that no diagnosis can read."""
    _checked(log)
    theirs, ours = log.about.get("env"), env.spec.id if env.spec is not None else None
    if theirs is not None and ours is not None and theirs != ours:
        raise ValueError(f"the log is of {theirs}, and the environment is {ours}")
    for episode in log.episodes:
        shapes: Sequence[tuple[str, Any, Any]] = (
            ("observations", episode.observations, env.observation_space.shape),
            ("actions", episode.actions, env.action_space.shape),
            ("states", episode.states, None if d_x is None else (d_x,)),
        )
        for name, array, shape in shapes:
            if array is not None and shape is not None and array.shape[1:] != shape:
                if name == "observations" and episode.states is not None:
                    continue  # a log of states alone
                raise ValueError(
                    f"the log is of another environment: its {name} have shape "
                    f"{array.shape[1:]}, here they have {shape}"
                )
