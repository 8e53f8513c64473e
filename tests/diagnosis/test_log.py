"""Logs: what was recorded comes back from a file as it was, and what cannot be read is refused."""

import copy
import io
import json
import pickle
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import windward as ww
from windward.diagnosis import (
    Diagnosis,
    Episode,
    Log,
    Recorder,
    Settings,
    diagnose_log,
    entry,
    load_log,
    log_of,
    save_log,
)
from windward.diagnosis.log import check_fits
from windward.envs import Bias, Changed, Disturbed
from windward.simulators import Unsupported


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """MuJoCo writes a log into the working directory when it warns."""
    monkeypatch.chdir(tmp_path)


class Counter(gym.Env):
    """Counts its steps; an episode ends at the seventh, or when told."""

    def __init__(self, observation_space: Any = None, action_space: Any = None) -> None:
        self.observation_space = observation_space or gym.spaces.Box(-99.0, 99.0, (2,), np.float32)
        self.action_space = action_space or gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.count = 0

    def seen(self) -> Any:
        return np.array([self.count, -self.count], dtype=np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.count = 0
        return self.seen(), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        return self.seen(), 0.5 * self.count, self.count == 7, False, {}


class Parts(Counter):
    """Observes a Dict."""

    def __init__(self) -> None:
        super().__init__(
            gym.spaces.Dict(
                {
                    "b": gym.spaces.Box(-99.0, 99.0, (2, 1), np.float64),
                    "a": gym.spaces.Discrete(3),
                }
            )
        )

    def seen(self) -> Any:
        return {"b": np.array([[self.count], [0.5]]), "a": self.count % 3}


def equal(one: Log, other: Log) -> bool:
    """Whether two logs hold the same bytes."""
    if dict(one.about) != dict(other.about) or len(one.episodes) != len(other.episodes):
        return False
    for a, b in zip(one.episodes, other.episodes, strict=True):
        for x, y in zip(a, b, strict=True):
            if isinstance(x, np.ndarray) and isinstance(y, np.ndarray):
                if x.dtype != y.dtype or x.shape != y.shape or x.tobytes() != y.tobytes():
                    return False
            elif x is not y and x != y:
                return False
    return True


def recorded(env: gym.Env, steps: int, path: Path | None = None, state: Any = None) -> Recorder:
    recorder = Recorder(env, path, state)
    recorder.reset(seed=0)
    recorder.action_space.seed(0)
    for _ in range(steps):
        _, _, terminated, truncated, _ = recorder.step(recorder.action_space.sample())
        if terminated or truncated:
            recorder.reset()
    return recorder


# --- recording ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Hopper-v5", "Pendulum-v1", "CartPole-v1"])
def test_a_recording_is_what_passed(name: str, tmp_path: Path) -> None:
    env = Recorder(gym.make(name))
    base: Any = env.unwrapped
    env.action_space.seed(1)
    episodes: list[dict[str, list[Any]]] = []
    for number in range(2):
        seen, _ = env.reset(seed=number)
        episodes.append({"seen": [seen], "done": [], "rewards": [], "states": [], "ends": []})
        now = episodes[-1]

        def state() -> np.ndarray:
            if hasattr(base, "data"):
                return np.concatenate([base.data.qpos, base.data.qvel])
            return np.array(base.state, dtype=np.float64)

        now["states"].append(state())
        for _ in range(12):
            action = env.action_space.sample()
            seen, reward, terminated, truncated, _ = env.step(action)
            for key, value in zip(now, (seen, action, reward, state()), strict=False):
                now[key].append(value)
            if terminated or truncated:
                break
    env.close()
    for episode, now in zip(env.log.episodes, episodes, strict=True):
        np.testing.assert_array_equal(episode.observations, now["seen"])
        assert episode.observations.dtype == now["seen"][0].dtype
        np.testing.assert_array_equal(episode.actions, now["done"])
        np.testing.assert_array_equal(episode.rewards, now["rewards"])
        assert episode.states is not None
        np.testing.assert_array_equal(episode.states, now["states"])
    assert env.log.about == {"env": name}
    assert env.log.steps == sum(len(now["done"]) for now in episodes)


@pytest.mark.parametrize("name", ["Hopper-v5", "Pendulum-v1", "CartPole-v1", "FrozenLake-v1"])
def test_a_file_gives_back_what_was_recorded(name: str, tmp_path: Path) -> None:
    path = tmp_path / "flight.npz"
    env = recorded(gym.make(name), 45, path)
    env.close()
    assert env.log.steps == 45
    assert equal(load_log(path), env.log)
    save_log(env.log, tmp_path / "again.npz")
    assert equal(load_log(str(tmp_path / "again.npz")), env.log)


def test_the_file_grows_with_each_episode_and_at_the_close(tmp_path: Path) -> None:
    path = tmp_path / "flight.npz"
    env = Recorder(Counter(), path)
    for episode in range(3):
        env.reset()
        assert path.is_file() == (episode > 0)
        for step in range(7 if episode < 2 else 4):
            ended = env.step(np.zeros(1, np.float32))[2]
            assert ended == (step == 6)
        if episode == 1:
            assert [each.steps for each in load_log(path).episodes] == [7, 7]
    assert [each.steps for each in load_log(path).episodes] == [7, 7]
    env.close()
    found = load_log(path)
    assert [each.steps for each in found.episodes] == [7, 7, 4]
    assert [each.terminated for each in found.episodes] == [True, True, False]
    assert [each.truncated for each in found.episodes] == [False, False, True]
    assert list(tmp_path.iterdir()) == [path]


def test_an_episode_that_a_reset_cuts_off_counts_as_cut_off() -> None:
    env = Recorder(Counter())
    env.reset()
    env.reset()  # an episode without a step is none
    env.step(np.zeros(1, np.float32))
    assert env.log.episodes == ()
    env.reset()
    (episode,) = env.log.episodes
    assert (episode.steps, episode.terminated, episode.truncated) == (1, False, True)


def test_steps_beyond_an_end_are_another_episode() -> None:
    env = Recorder(Counter())
    env.reset()
    for _ in range(10):
        env.step(np.zeros(1, np.float32))
    env.close()
    first, second = env.log.episodes
    assert (first.steps, second.steps) == (7, 3)
    np.testing.assert_array_equal(second.observations[:, 0], [7, 8, 9, 10])


def test_a_step_before_the_reset_is_refused() -> None:
    with pytest.raises(gym.error.ResetNeeded, match="reset"):
        Recorder(Counter()).step(np.zeros(1, np.float32))


def test_what_is_recorded_is_a_copy() -> None:
    class Same(Counter):
        shown = np.zeros(2, np.float32)

        def seen(self) -> Any:
            self.shown[:] = self.count
            return self.shown

    env = Recorder(Same())
    env.reset()
    action = np.zeros(1, np.float32)
    for step in range(3):
        action[:] = 0.1 * step
        env.step(action)
    env.close()
    (episode,) = env.log.episodes
    np.testing.assert_array_equal(episode.observations[:, 0], [0, 1, 2, 3])
    np.testing.assert_allclose(episode.actions[:, 0], [0, 0.1, 0.2])


def test_a_step_that_fails_is_not_recorded() -> None:
    env = Recorder(Disturbed(gym.make("Hopper-v5"), Bias(-1.5), "mass:leg"))
    env.reset(seed=0)
    with pytest.raises(ValueError, match="mass"):
        env.step(np.zeros(3))
    env.close()
    assert env.log.episodes == ()


def test_observations_with_parts_are_written_as_one_array(tmp_path: Path) -> None:
    path = tmp_path / "parts.npz"
    env = recorded(Parts(), 12, path)
    env.close()
    found = load_log(path)
    assert equal(found, env.log)
    # Parts in the order of their names, a Discrete one as one of three.
    np.testing.assert_array_equal(found.episodes[0].observations[4], [0, 1, 0, 4, 0.5])
    assert found.episodes[0].observations.dtype == np.float64
    check_fits(found, Parts(), None)


@pytest.mark.parametrize(
    "space",
    [
        gym.spaces.Text(5),
        gym.spaces.Sequence(gym.spaces.Discrete(3)),
        gym.spaces.Dict({"a": gym.spaces.Sequence(gym.spaces.Discrete(3))}),
    ],
    ids=["text", "sequence", "dict of a sequence"],
)
def test_observations_that_are_no_arrays_are_refused_before_anything_is_recorded(
    space: gym.Space,
) -> None:
    with pytest.raises(Unsupported, match=r"observations.*(Text|Sequence)"):
        Recorder(Counter(observation_space=space))


@pytest.mark.parametrize("space", [gym.spaces.Tuple([gym.spaces.Discrete(2)]), gym.spaces.Text(3)])
def test_actions_that_are_no_arrays_are_refused(space: gym.Space) -> None:
    with pytest.raises(Unsupported, match=r"actions.*(Tuple|Text)"):
        Recorder(Counter(action_space=space))


def test_a_folder_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match="no folder 'nowhere'"):
        Recorder(Counter(), "nowhere/flight.npz")


@pytest.mark.parametrize("again", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_a_copied_recorder_goes_on_by_itself(again: Any) -> None:
    env = recorded(gym.make("Hopper-v5"), 15)
    twin = again(env)
    assert twin.log.steps == 15  # the episode that was running is cut off in the copy
    with pytest.raises(gym.error.ResetNeeded, match="reset"):
        twin.step(np.zeros(3, np.float32))
    twin.reset(seed=1)
    twin.step(np.zeros(3, np.float32))
    twin.close()
    assert twin.log.steps == 16
    states = twin.log.episodes[-1].states
    np.testing.assert_array_equal(states[-1, :6], twin.unwrapped.data.qpos)
    env.step(np.zeros(3, np.float32))
    env.close()
    assert env.log.steps == 16


def test_a_spec_rebuilds_the_recorder(tmp_path: Path) -> None:
    env = Recorder(gym.make("Pendulum-v1"), tmp_path / "flight.npz")
    twin = gym.make(env.spec)
    assert isinstance(twin, Recorder)
    assert twin.path == env.path
    assert twin.log.about == {"env": "Pendulum-v1"}


# --- arrays of one's own -----------------------------------------------------------------------


def own(n: int = 24, **more: Any) -> dict[str, Any]:
    """Two episodes of 12 moments."""
    rng = np.random.default_rng(0)
    arrays = {
        "observations": rng.standard_normal((n, 3)),
        "states": rng.standard_normal((n, 2)),
        "actions": rng.standard_normal((n, 1)),
        "ends": np.arange(n) % 12 == 11,
        "rewards": np.arange(float(n)),
    }
    return {**arrays, **more}


def test_arrays_are_cut_into_episodes_at_their_ends() -> None:
    arrays = own()
    log = log_of(arrays, {"env": "Robot-v0"})
    assert log.about == {"env": "Robot-v0"}
    assert (log.steps, len(log.episodes)) == (22, 2)
    for k, episode in enumerate(log.episodes):
        moments, steps = slice(12 * k, 12 * k + 12), slice(12 * k, 12 * k + 11)
        np.testing.assert_array_equal(episode.observations, arrays["observations"][moments])
        assert episode.states is not None
        np.testing.assert_array_equal(episode.states, arrays["states"][moments])
        np.testing.assert_array_equal(episode.actions, arrays["actions"][steps])
        np.testing.assert_array_equal(episode.rewards, arrays["rewards"][steps])
        assert (episode.terminated, episode.truncated) == (False, True)


def test_lists_columns_whole_numbers_and_single_moments_are_taken() -> None:
    arrays = own(ends=[[each % 12 == 11 or each == 5 or each == 6] for each in range(24)])
    del arrays["states"], arrays["rewards"]
    arrays["actions"] = list(range(24))
    log = log_of(arrays)
    assert [each.steps for each in log.episodes] == [5, 4, 11]  # a moment alone is no step
    assert log.episodes[1].actions.tolist() == [7, 8, 9, 10]
    assert log.episodes[0].states is None
    assert not log.episodes[0].rewards.any()


def test_states_alone_are_a_log() -> None:
    arrays = own()
    del arrays["observations"]
    log = log_of(arrays)
    np.testing.assert_array_equal(log.episodes[1].observations, arrays["states"][12:])


def test_the_action_at_an_end_is_not_looked_at() -> None:
    arrays = own()
    arrays["actions"][[11, 23]] = np.nan
    assert log_of(arrays).steps == 22


def test_a_log_of_ones_own_goes_to_a_file_and_back(tmp_path: Path) -> None:
    for arrays in (own(), own(actions=np.arange(24) % 3)):
        log = log_of(arrays, {"env": None, "robot": "left"})
        save_log(log, tmp_path / "own.npz")
        assert equal(load_log(tmp_path / "own.npz"), log)


def without(name: str) -> dict[str, Any]:
    arrays = own()
    del arrays[name]
    return arrays


def spoiled(name: str, row: int, value: float) -> dict[str, Any]:
    arrays = own()
    arrays[name][row] = value
    return arrays


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ([1, 2], "arrays by name.*got list"),
        ({"actions": [1], "ends": [1]}, "neither 'observations' nor 'states'"),
        (without("actions"), "no 'actions'"),
        (without("ends"), "no 'ends'.*mark the last moment"),
        (spoiled("observations", 3, np.nan), "observations.*step 3 of episode 0"),
        (spoiled("states", 14, np.inf), "states.*step 2 of episode 1"),
        (spoiled("actions", 22, np.nan), "actions.*step 10 of episode 1"),
        (own(ends=np.arange(24) == 11), "last episode is not marked"),
        (own(ends=np.zeros(24)), "not marked"),
        (own(ends=np.zeros((24, 2))), r"'ends' must be one for each moment; got \(24, 2\)"),
        (own(ends=np.where(np.arange(24) == 4, np.nan, 1.0)), "'ends'.*row 4 is NaN"),
        (own(rewards=np.zeros((24, 3))), r"'rewards' must be one.*\(24, 3\)"),
        (own(observations=np.zeros((23, 3))), "'observations' has 23 rows and its 'actions' 24"),
        (own(states=np.zeros((25, 3))), "'states' has 25 rows"),
        (own(actions=np.array(["left"] * 24)), "'actions' must be rows of numbers"),
        (own(actions=[{"a": 1}] * 24), "'actions' must be rows of numbers; got object"),
        (own(actions=[[1.0]] * 23 + [[1.0, 2.0]]), "'actions' must be rows of one shape"),
        (own(actions=3.0), "'actions' must be rows of numbers"),
        (own(ends=np.ones(24)), "no episode"),
        (own(ends=np.arange(24) % 2 == 1, observations=np.zeros((24, 3))), None),
        ({name: array[:9] for name, array in own(ends=np.arange(24) == 8).items()}, "8 steps.*10"),
        ({name: array[:0] for name, array in own().items()}, "not marked"),
    ],
)
def test_arrays_that_are_no_log_are_refused(arrays: Any, message: str | None) -> None:
    if message is None:
        assert log_of(arrays).steps == 12
        return
    with pytest.raises(ValueError, match=message):
        log_of(arrays)


# --- files -------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "saved.npz"
    save_log(log_of(own(), {"env": "Robot-v0"}), path)
    return path


def tamper(path: Path, change: Callable[[dict[str, Any], dict[str, Any]], Any]) -> None:
    """Writes a file again with other arrays, or another header."""
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    header = json.loads(arrays.pop("header").tobytes())
    change(arrays, header)
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    np.savez(path, header=text, **arrays)


def lengths(*values: float) -> Any:
    return lambda arrays, header: arrays.update(lengths=np.array(values))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a, h: h.update(version=2), "version 2.*version 1.*update windward"),
        (lambda a, h: h.pop("version"), "no 'version'"),
        (lambda a, h: h.update(kind="windward.weights"), "'windward.weights', not 'windward.log'"),
        (lambda a, h: h.update(about=[1]), r"damaged.*\[1\]"),
        (lambda a, h: h.pop("about"), "no 'about'"),
        (lambda a, h: a.pop("actions"), "no 'actions'"),
        (lambda a, h: a.pop("lengths"), "no 'lengths'"),
        (lengths(11, 10), "damaged: actions has 22 rows.*21"),
        (lengths(22), "damaged: observations has 24 rows.*23"),
        (lengths(11, 5, 6), "damaged: observations has 24 rows.*25"),
        (lengths(33, -11), "lengths of episodes"),
        (lengths(22, 0), "lengths of episodes"),
        (lengths(11.0, 11.0), "lengths of episodes"),
        (lengths(2**62, 2**62, 2**62, 2**62 + 22), "damaged: actions has 22 rows"),
        (lambda a, h: a.update(lengths=np.array([[11, 11]])), "lengths of episodes"),
        (lengths(), "damaged|no episode"),
        (lambda a, h: a.update(terminated=np.array([True])), "damaged: terminated has 1 rows"),
        (lambda a, h: a.update(truncated=np.ones((2, 2))), r"damaged: truncated.*\(2, 2\)"),
        (lambda a, h: a.update(rewards=np.zeros((22, 2))), r"damaged: rewards.*\(22, 2\)"),
        (lambda a, h: a.update(rewards=np.float64(3.0)), "'rewards' must be rows"),
        (lambda a, h: a.update(actions=np.array(["up"] * 22)), "'actions' must be rows of numbers"),
        (lambda a, h: a.update(states=a["states"][:-1]), "damaged: states has 23 rows"),
        (lambda a, h: a["observations"].__setitem__((13, 0), np.nan), "step 1 of episode 1"),
    ],
)
def test_a_file_that_was_tampered_with_is_refused_by_name(
    saved: Path, change: Any, message: str
) -> None:
    tamper(saved, change)
    with pytest.raises(ValueError, match=message):
        load_log(saved)


class Trap:
    """Would say so if it were made."""

    sprung = False

    def __reduce__(self) -> Any:
        return spring, ()


def spring() -> None:
    Trap.sprung = True


def test_pickled_objects_are_refused_and_never_made(saved: Path) -> None:
    tamper(saved, lambda a, h: a.update(rewards=np.array([Trap()] * 22, dtype=object)))
    with pytest.raises(ValueError, match="damaged or not windward's"):
        load_log(saved)
    assert not Trap.sprung


def test_what_is_no_file_of_windward_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.npz"
    with pytest.raises(ValueError, match=r"no file .*other\.npz"):
        load_log(path)
    path.write_bytes(b"time,x,y\n0.0,1.0,2.0\n")
    with pytest.raises(ValueError, match="damaged or not windward's"):
        load_log(path)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="damaged or not windward's"):
        load_log(path)
    np.savez(path, observations=np.zeros((3, 2)))
    with pytest.raises(ValueError, match="damaged or not windward's"):
        load_log(path)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("header.npy", "no array")
    with pytest.raises(ValueError, match="damaged or not windward's"):
        load_log(path)
    with pytest.raises(ValueError, match="no file"):
        load_log(tmp_path)


def test_a_truncated_file_is_refused_wherever_it_was_cut(saved: Path) -> None:
    whole = saved.read_bytes()
    for length in np.linspace(1, len(whole) - 1, 25).astype(int):
        saved.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="damaged or not windward's"):
            load_log(saved)


def test_a_file_with_wrong_bytes_is_an_error_for_users_or_the_same_log(saved: Path) -> None:
    log, whole = load_log(saved), saved.read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for place in rng.integers(0, len(whole), 150):
        spoilt = bytearray(whole)
        spoilt[place] ^= 1 << int(rng.integers(8))
        saved.write_bytes(spoilt)
        try:
            found = load_log(saved)
        except ValueError:
            refused += 1
        else:
            assert equal(found, log)
    assert refused > 75


def test_what_cannot_be_written_is_refused_and_what_was_there_stays(saved: Path) -> None:
    before = saved.read_bytes()
    with pytest.raises(ValueError, match="JSON"):
        save_log(log_of(own(), {"env": np.zeros(2)}), saved)
    with pytest.raises(ValueError, match="no episode"):
        save_log(Log((), {}), saved)
    assert saved.read_bytes() == before


def test_states_that_only_some_episodes_have_are_left_out(tmp_path: Path) -> None:
    log = log_of(own())
    first, second = log.episodes
    save_log(Log((first, second._replace(states=None)), {}), tmp_path / "some.npz")
    found = load_log(tmp_path / "some.npz")
    assert [each.states for each in found.episodes] == [None, None]
    np.testing.assert_array_equal(found.episodes[0].observations, first.observations)


# --- of which environment ----------------------------------------------------------------------


def log_from(name: str, steps: int = 40) -> Log:
    env = recorded(gym.make(name), steps)
    env.close()
    return env.log


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Walker2d-v5", "the log is of Hopper-v5, and the environment is Walker2d-v5"),
        ("Hopper-v4", "Hopper-v5.*Hopper-v4"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*out of date:DeprecationWarning")
def test_a_log_of_another_environment_is_refused(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        diagnose_log(log_from("Hopper-v5"), name)


def test_a_log_of_no_known_environment_is_told_by_its_shapes() -> None:
    log = log_from("Hopper-v5")._replace(about={})
    check_fits(log, gym.make("Hopper-v5"), 12)
    with pytest.raises(ValueError, match=r"actions have shape \(3,\), here they have \(1,\)"):
        check_fits(log, gym.make("InvertedPendulum-v5"), None)
    with pytest.raises(ValueError, match=r"states have shape \(12,\), here they have \(13,\)"):
        check_fits(log, gym.make("Hopper-v5"), 13)
    blind = Log(tuple(each._replace(states=None) for each in log.episodes), {})
    with pytest.raises(ValueError, match=r"observations have shape \(11,\), here.* \(17,\)"):
        check_fits(blind, gym.make("Walker2d-v5"), 18)


def test_each_episode_must_fit_and_not_the_first_alone() -> None:
    log = log_from("Hopper-v5")
    odd = log.episodes[-1]._replace(actions=np.zeros((log.episodes[-1].steps, 2)))
    with pytest.raises(ValueError, match=r"actions have shape \(2,\)"):
        check_fits(Log((*log.episodes, odd), {}), gym.make("Hopper-v5"), 12)


def test_a_log_of_states_alone_may_have_them_for_observations() -> None:
    first = log_from("Hopper-v5").episodes[0]
    assert first.states is not None
    arrays = {
        "states": first.states,
        "actions": np.concatenate([first.actions, first.actions[-1:]]),
        "ends": np.arange(first.steps + 1) == first.steps,
    }
    check_fits(log_of(arrays), gym.make("Hopper-v5"), 12)


def episode(**more: Any) -> Episode:
    parts = {"observations": np.zeros((13, 3)), "actions": np.zeros((12, 1))}
    return Episode(**{**parts, "rewards": np.zeros(12), **more}, terminated=False, truncated=True)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("log", "message"),
    [
        (Log((), {}), "no episode"),
        (Log((episode(actions=np.zeros((9, 1)), observations=np.zeros((10, 3))),), {}), "9 steps"),
        (Log((episode(observations=np.zeros((12, 3))),), {}), "12 actions and 12 observations"),
        (Log((episode(), episode(states=np.zeros((9, 2)))), {}), "episode 1.*9 states"),
        (Log((episode(), episode(actions=np.full((12, 1), np.nan))), {}), "step 0 of episode 1"),
        ({"observations": np.zeros((4, 3))}, "no 'actions'"),
        (7, "a file, a Log or arrays by name; got int"),
        ("nowhere.npz", r"no file 'nowhere\.npz'"),
    ],
)
def test_logs_that_no_diagnosis_can_read_are_refused(log: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        diagnose_log(log, "Pendulum-v1")


def gap_in(log: Log, number: int, first: int, missing: int) -> Log:
    """A log in which steps of an episode are missing."""
    old = log.episodes[number]
    moments = np.r_[: first + 1, first + 1 + missing : old.steps + 1]
    assert old.states is not None
    new = Episode(
        old.observations[moments], old.actions[moments[:-1]], old.rewards[moments[:-1]],
        False, True, old.states[moments],
    )  # fmt: skip
    episodes = [*log.episodes[:number], new, *log.episodes[number + 1 :]]
    return log._replace(episodes=tuple(episodes))


@pytest.mark.parametrize(
    ("name", "missing"), [("Pendulum-v1", 25), ("HalfCheetah-v5", 40), ("Swimmer-v5", 300)]
)
def test_missing_steps_are_refused_where_they_are(name: str, missing: int) -> None:
    log = log_from(name, 30 + missing)
    assert len(log.episodes) == 1
    with pytest.raises(ValueError, match=r"step 20 of episode 0 jumps.*mark an end"):
        diagnose_log(gap_in(log, 0, 20, missing), name)


def test_an_end_that_is_not_marked_is_refused_in_its_episode() -> None:
    env = recorded(gym.make("Pendulum-v1", max_episode_steps=25), 75)
    first, second, third = env.log.episodes
    joined = Episode(*(np.concatenate(each) for each in zip(second[:3], third[:3], strict=True)),
                     False, True, np.concatenate([second.states, third.states]))  # fmt: skip
    # 26 moments each: the action at the moment between them is any.
    joined = joined._replace(actions=np.insert(joined.actions, 25, 0.0, axis=0))
    with pytest.raises(ValueError, match="step 25 of episode 1 jumps"):
        diagnose_log(Log((first, joined), {}), "Pendulum-v1")


# --- files that are not to be unpacked ---------------------------------------------------------


def member(shape: tuple[int, ...], data: bytes = b"") -> bytes:
    """An array as it is in a file, whatever its header says."""
    out = io.BytesIO()
    header = {"descr": "<f8", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(out, header)
    return out.getvalue() + data


@pytest.mark.parametrize("shape", [(10**13,), (10**7, 10**7), (-1,), (0, -5)])
def test_a_header_that_promises_too_much_is_refused_before_memory_is_taken(
    saved: Path, shape: tuple[int, ...]
) -> None:
    with zipfile.ZipFile(saved) as file:
        whole = {name: file.read(name) for name in file.namelist()}
    with zipfile.ZipFile(saved, "w") as file:
        for name, content in (whole | {"states.npy": member(shape, bytes(64))}).items():
            file.writestr(name, content)
    with pytest.raises(ValueError, match=r"saved\.npz.*states\.npy.*shape"):
        load_log(saved)


def test_what_would_take_too_much_memory_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("header.npy", member((0,)))
        file.writestr("states.npy", member((4_000_000,), bytes(32_000_000)))
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"bomb\.npz.*too large.*limit="):
        load_log(path, limit=10**6)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10**6
    with pytest.raises(ValueError, match="damaged"):  # its header is none
        load_log(path)


def test_what_nobody_asked_for_is_not_unpacked(saved: Path) -> None:
    before = load_log(saved)
    with zipfile.ZipFile(saved, "a") as file:
        file.writestr("more.npy", member((10**13,)))
        file.writestr("readme.txt", "hello")
    assert equal(load_log(saved), before)


def test_files_of_others_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "own.npz"
    np.savez(path, **own())
    with pytest.raises(ValueError, match=r"actions.*diagnose_log\(dict\(np\.load\(.*own\.npz"):
        load_log(path)
    assert log_of(dict(np.load(path))).steps > 0
    path.write_text("time,x,y\n0.0,1.0,2.0\n")
    with pytest.raises(ValueError, match="zip archive of arrays") as told:
        load_log(path)
    assert "allow_pickle" not in str(told.value)


# --- runs --------------------------------------------------------------------------------------


class Sled(gym.Env):
    """Slides with drag; windward knows no physics of it, and there is no state before reset."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, drag: float = 0.4, push: float = 1.0) -> None:
        self.drag, self.push = drag, push

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.x = self.np_random.normal(size=2)
        return self.x.copy(), {}

    def step(self, action: Any) -> Any:
        x = self.x[None]
        self.x = slide(x, np.asarray(action, np.float64)[None], self.drag, self.push)[0][0]
        return self.x.copy(), 0.0, False, False, {}


def slide(x: np.ndarray, u: np.ndarray, drag: float, push: float) -> Any:
    v = x[:, 1] + 0.1 * (push * u[:, 0] - drag * x[:, 1])
    return np.stack([x[:, 0] + 0.1 * v, v], axis=1), np.zeros(len(x)), np.zeros(len(x), dtype=bool)


def sled_state(env: Any) -> Any:
    return env.x


def sled_simulator(step: Any = slide, **more: Any) -> Any:
    parameters = {"drag": 0.4, "push": 1.0}
    return ww.simulator(Sled(), step=step, state=sled_state, parameters=parameters, **more)


def test_a_simulator_of_ones_own_tells_what_changed(tmp_path: Path) -> None:
    found = ww.diagnose(None, Sled(drag=0.6), steps=80, simulator=sled_simulator())
    assert found.values == pytest.approx({"drag": 1.5}, rel=1e-3)
    x, u = np.ones((3, 2)), np.ones((3, 1))
    there = found.simulator().step(x, u)[0]
    np.testing.assert_allclose(there, slide(x, u, 0.6, 1.0)[0], atol=1e-4)
    with pytest.raises(Unsupported, match=r"drag.*make=lambda drag, push.*simulator\(\)"):
        found.environment()
    world = found.environment(make=lambda drag, push: Sled(drag, push))
    assert (world.drag, world.push) == pytest.approx((0.6, 1.0), rel=1e-3)  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match=r"make is called with drag=0\.6.*push=1"):
        found.environment(make=Sled.reset)
    found.save(tmp_path / "diagnosis.npz")
    loaded = Diagnosis.load(tmp_path / "diagnosis.npz")
    with pytest.raises(Unsupported, match=r"nominal=windward\.simulator\(env, step="):
        loaded.simulator()
    again = loaded.simulator(nominal=sled_simulator())
    np.testing.assert_allclose(again.step(x, u)[0], there)
    assert loaded.environment(make=Sled).drag == pytest.approx(0.6, rel=1e-3)  # type: ignore[attr-defined]


def test_a_log_of_ones_own_states_needs_no_state_of_the_environment() -> None:
    env = recorded(Sled(drag=0.6), 80, state=sled_state)
    env.end_episode()
    log = env.log
    assert log.episodes[0].states is not None
    np.testing.assert_array_equal(log.episodes[0].states, log.episodes[0].observations)
    found = ww.diagnose_log(log, Sled(), simulator=sled_simulator())
    assert found.values == pytest.approx({"drag": 1.5}, rel=1e-3)


def test_a_reader_of_states_is_checked() -> None:
    env = Recorder(Sled(), state=lambda base: base.x.reshape(1, 2))
    with pytest.raises(ValueError, match=r"state\(env\) must have 1 dimension"):
        env.reset(seed=0)


def test_a_function_that_computes_nothing_is_named() -> None:
    def broken(x: np.ndarray, u: np.ndarray, drag: float, push: float) -> Any:
        return np.nan * x, np.zeros(len(x)), np.zeros(len(x), dtype=bool)

    with pytest.raises(ValueError, match=r"broken\(x, u, drag=0\.4, push=1\).*40 of 40"):
        ww.diagnose(None, Sled(), steps=40, simulator=sled_simulator(broken))


def test_a_simulator_with_noise_is_taken_without_it() -> None:
    world = Disturbed(Changed(gym.make("Pendulum-v1"), {"mass": 1.3}), "bias:value=0.2", "action")
    found = ww.diagnose(None, world, steps=100, simulator=ww.simulator(world))
    assert found.changes["mass"].factor == pytest.approx(1.3, rel=0.01)


def test_an_environment_without_an_end_is_stopped() -> None:
    env = Recorder(gym.make("Pendulum-v1", max_episode_steps=-1))
    found = ww.diagnose(None, env, settings=Settings(steps=60))
    assert found.steps == 60
    assert env.log.steps in (0, 60)  # its last episode may still be open
    env.close()
    assert env.log.steps == 60


@pytest.mark.parametrize("when", ["fewest changes", "what is left over"])
def test_what_was_interrupted_is_not_said_to_have_changed(
    when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def stopped(_: bool) -> Iterator[Any]:
        def progress(what: str) -> None:
            if what == when:
                raise KeyboardInterrupt

        yield progress

    monkeypatch.setattr(entry, "_progress", stopped)
    world = Changed(gym.make("Pendulum-v1"), {"mass": 1.5})
    found = ww.diagnose(None, world, steps=80, parameters=["mass"])
    assert not found.complete
    assert found.changes == {}
    assert found.values == {}
    assert found.wind is None
    assert "mass" in found.suspects
    assert str(found).startswith("interrupted")


def with_lost(env: gym.Env, lost: list[int], steps: int = 120) -> dict[str, Any]:
    """A recording from which moments are missing."""
    recorder = recorded(env, steps)
    recorder.end_episode()
    (episode,) = recorder.log.episodes
    assert episode.states is not None
    kept = np.setdiff1d(np.arange(steps + 1), lost)
    return {
        "observations": episode.observations[kept],
        "states": episode.states[kept],
        "actions": np.append(episode.actions, episode.actions[-1:], axis=0)[kept],
        "ends": np.arange(len(kept)) == len(kept) - 1,
    }


@pytest.mark.parametrize("delay", [0, 1])
def test_steps_that_were_lost_are_named_and_left_out(delay: int) -> None:
    world = Changed(gym.make("Pendulum-v1"), {"mass": 1.3, "delay": delay})
    found = ww.diagnose_log(with_lost(world, [40, 81]), "Pendulum-v1")
    assert found.changes["mass"].factor == pytest.approx(1.3, rel=1e-3)
    assert found.wind is None
    assert found.unexplained < 1e-3
    (note,) = found.notes
    assert note.startswith("steps 40 and 80 of episode 0 do not follow from the ones before")
    found = ww.diagnose_log(with_lost(world, [40]), "Pendulum-v1")
    assert found.notes[0].startswith("step 40 of episode 0 does not follow from the one before")
    assert ww.diagnose_log(with_lost(world, []), "Pendulum-v1").notes == ()


def test_a_wind_without_an_effect_is_not_reported() -> None:
    arrays = with_lost(Changed(gym.make("Pendulum-v1"), {"mass": 1.3}), [])
    arrays["states"][60] += [0.0, 0.03]  # one outlier, too small for a lost step
    found = ww.diagnose_log(arrays, "Pendulum-v1")
    assert found.wind is None
    assert found.notes == ()


@pytest.mark.parametrize(
    ("env", "more", "message"),
    [
        (
            lambda: gym.make_vec("Pendulum-v1", num_envs=2),
            {},
            "one environment at a time.*Recorder",
        ),
        (lambda: gym.make("Pendulum-v1"), {"settings": {"steps": 50}}, r"Settings\(\*\*settings\)"),
        (lambda: gym.make("Pendulum-v1"), {"settings": 50}, "must be .*Settings.*got int"),
        (Sled, {}, r"step=.*state=.*fit_simulator"),
        (
            lambda: gym.wrappers.NormalizeObservation(gym.make("Pendulum-v1")),
            {},
            r"NormalizeObservation\(windward\.Recorder\(env.*diagnose_log",
        ),
        (
            lambda: gym.wrappers.FrameStackObservation(gym.make("Pendulum-v1"), 2),
            {},
            r"FrameStackObservation\(windward\.Recorder\(env.*diagnose_log",
        ),
    ],
)
def test_what_cannot_be_diagnosed_is_told_with_a_way_out(env: Any, more: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ww.diagnose(None, env(), **more)


def test_a_recorder_is_of_one_environment() -> None:
    with pytest.raises(ValueError, match=r"one environment at a time.*vectorised"):
        Recorder(gym.make_vec("Pendulum-v1", num_envs=2))  # type: ignore[arg-type]
