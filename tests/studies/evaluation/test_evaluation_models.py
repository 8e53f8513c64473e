"""Models by name: every kind of file is found out, loaded and evaluated, and bad ones refused."""

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from windward.agents import D4PG
from windward.studies.evaluation.evaluate import Evaluation, evaluate
from windward.studies.evaluation.loading import class_of, load_model, logits_for, make_env

WIND = ("uniform:bound=0.1", "qvel")


def small(model: Any, env_id: str, signal: str = "auto", **options: Any) -> Evaluation:
    given = {"seeds": 1, "episodes": 2, "max_steps": 6} | options
    return evaluate(model, env_id, *WIND, signal, **given)


def sb3(name: str, env_id: str, folder: Path, library: str = "stable_baselines3") -> Path:
    """A file of an untrained model."""
    module = pytest.importorskip(library)
    settings: dict[str, Any] = {"policy_kwargs": {"net_arch": [8]}, "seed": 0}
    if name not in ("PPO", "A2C"):
        settings["buffer_size"] = 10
    path = folder / f"{library}-{name}.zip"
    getattr(module, name)("MlpPolicy", env_id, **settings).save(path)
    return path


@pytest.mark.parametrize(
    ("name", "env_id", "found"),
    [
        ("PPO", "Pendulum-v1", "PPO"),
        ("A2C", "CartPole-v1", "A2C"),
        ("DDPG", "Pendulum-v1", "TD3"),  # the same policy and critic
        ("TD3", "Pendulum-v1", "TD3"),
        ("SAC", "Pendulum-v1", "SAC"),
        ("DQN", "CartPole-v1", "DQN"),
    ],
)
def test_a_zip_of_sb3_tells_its_algorithm(
    name: str, env_id: str, found: str, tmp_path: Path
) -> None:
    path = sb3(name, env_id, tmp_path)
    assert class_of(path) == ("stable_baselines3", found)
    assert class_of(path, "TQC") == ("stable_baselines3", "TQC")
    assert class_of(path, "sb3_contrib.TQC") == ("sb3_contrib", "TQC")


@pytest.mark.parametrize(
    ("name", "env_id", "signal"),
    [
        ("DDPG", "Pendulum-v1", "pd1"),
        ("PPO", "Pendulum-v1", "pd3"),
        ("A2C", "CartPole-v1", "pd3"),
        ("DQN", "CartPole-v1", "pd1"),
    ],
)
def test_a_zip_of_sb3_is_evaluated(name: str, env_id: str, signal: str, tmp_path: Path) -> None:
    found = small(str(sb3(name, env_id, tmp_path)), env_id, signal)
    assert found.signal == signal
    assert np.isfinite(found.runs["adapted"].returns).all()


@pytest.mark.parametrize(
    ("name", "env_id", "signal"),
    [("SAC", "Pendulum-v1", "pd1"), ("PPO", "CartPole-v1", "pd3")],
)
def test_a_zip_of_sbx_is_evaluated(name: str, env_id: str, signal: str, tmp_path: Path) -> None:
    path = sb3(name, env_id, tmp_path, "sbx")
    assert class_of(path) == ("sbx", name)
    assert small(str(path), env_id, signal).signal == signal


def test_a_model_under_vec_normalize_sees_what_it_was_trained_on(tmp_path: Path) -> None:
    library = pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    env = VecNormalize(DummyVecEnv([lambda: gym.make("Pendulum-v1")]))
    env.obs_rms.mean, env.obs_rms.var = np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0])
    model = library.PPO("MlpPolicy", env, policy_kwargs={"net_arch": [8]}, seed=0)
    model.save(tmp_path / "model.zip")
    env.save(str(tmp_path / "scales.pkl"))
    scaled = load_model(
        str(tmp_path / "model.zip"), "Pendulum-v1", vec_normalize=tmp_path / "scales.pkl"
    )
    plain = load_model(str(tmp_path / "model.zip"), "Pendulum-v1")
    found = scaled.get_vec_normalize_env()
    np.testing.assert_array_equal(found.obs_rms.mean, [1.0, 2.0, 3.0])
    returns = [small(each, "Pendulum-v1").runs["base"].returns for each in (scaled, plain)]
    assert (returns[0] != returns[1]).all()
    with pytest.raises(ValueError, match=r"there is no file .*none.pkl"):
        load_model(str(tmp_path / "model.zip"), "Pendulum-v1", None, tmp_path / "none.pkl")


def test_an_agent_of_windward_is_evaluated(tmp_path: Path) -> None:
    agent = D4PG("Pendulum-v1", widths=(8,), seed=0)
    agent.save(tmp_path / "agent.npz")
    found = small(str(tmp_path / "agent.npz"), "Pendulum-v1", "pd1")
    same = small(agent, "Pendulum-v1", "pd1")
    np.testing.assert_array_equal(found.runs["adapted"].returns, same.runs["adapted"].returns)
    with pytest.raises(ValueError, match="is of another environment or agent"):
        small(str(tmp_path / "agent.npz"), "Hopper-v5")


def test_a_base_policy_in_a_file_is_evaluated() -> None:
    path = files("windward.policies") / "data" / "pendulum.npz"
    found = small(str(path), "Pendulum-v1", "pd2")
    same = small("shipped", "Pendulum-v1", "pd2")
    np.testing.assert_array_equal(found.runs["adapted"].returns, same.runs["adapted"].returns)


SOURCE = """
import numpy as np

def policy(x):
    return [-2.0 * x[1] - 0.5 * x[2]]

def signal(x, u, reward, x_next):
    return x_next - x

def push(x):
    return int(x[2] > 0)

def logits(x):
    return np.stack([-5.0 * x[:, 2], 5.0 * x[:, 2]], axis=1)

def wrong(x):
    return [0.0, 0.0]

def broken(x):
    raise RuntimeError("no battery")

class Pusher:
    logits = staticmethod(logits)

    def predict(self, observation, deterministic=False):
        return np.int64(observation[2] > 0), None

pusher = Pusher()
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Names of what is in a module of the present folder."""
    name = f"mine_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    return lambda each: f"{name}:{each}"


def test_functions_are_evaluated(module: Callable[[str], str]) -> None:
    found = small(module("policy"), "Pendulum-v1", module("signal"))
    assert found.signal == "own"
    assert (found.runs["base"].returns < 0).all()


def test_discrete_functions_are_evaluated_with_logits(module: Callable[[str], str]) -> None:
    given = small(module("push"), "CartPole-v1", logits=module("logits"))
    own = small(module("pusher"), "CartPole-v1")
    np.testing.assert_array_equal(given.runs["adapted"].returns, own.runs["adapted"].returns)
    with pytest.raises(ValueError, match="push has no logits"):
        small(module("push"), "CartPole-v1")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wrong", r"wrong does not fit this environment: .* shape \(1,\)"),
        ("broken", "broken fails on the first observation.*no battery"),
        ("Pusher", "must be an instance; got the class Pusher"),
        ("nothing", "has no 'nothing'"),
    ],
)
def test_functions_that_do_not_work_are_refused(
    name: str, message: str, module: Callable[[str], str]
) -> None:
    with pytest.raises(ValueError, match=message):
        small(module(name), "Pendulum-v1")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.zip", "there is no file 'none.zip'"),
        ("none.npz", "there is no file 'none.npz'"),
        ("none", "a model is a .zip of Stable-Baselines3 or SBX"),
        ("model.pt", "a model is a .zip of Stable-Baselines3 or SBX"),
        ("junk.zip", "is damaged or not a model of Stable-Baselines3 or SBX"),
        ("junk.npz", "is damaged or not windward's"),
        ("no_such_module:policy", "'no_such_module' .* cannot be imported"),
    ],
)
def test_other_files_and_names_are_refused(
    name: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for each in ("model.pt", "junk.zip", "junk.npz"):
        (tmp_path / each).write_bytes(b"junk")
    with pytest.raises(ValueError, match=message):
        load_model(name, "Pendulum-v1")


def test_a_zip_for_another_environment_or_algorithm_is_refused(tmp_path: Path) -> None:
    path = str(sb3("SAC", "Pendulum-v1", tmp_path))
    with pytest.raises(ValueError, match="SAC is of another environment: it takes observations"):
        small(path, "Hopper-v5")
    with pytest.raises(ValueError, match=r"stable_baselines3.TD3 cannot load .*say which with"):
        load_model(path, "Pendulum-v1", "TD3")
    with pytest.raises(ValueError, match="has no algorithm 'Nothing'"):
        load_model(path, "Pendulum-v1", "Nothing")
    with pytest.raises(ValueError, match=r"needs not_there .*pip install"):
        load_model(path, "Pendulum-v1", "not_there.SAC")
    with pytest.raises(ValueError, match="algo and vec_normalize are for a"):
        load_model("shipped", "Pendulum-v1", "SAC")


def test_a_zip_does_not_run_before_its_class_is_known(tmp_path: Path) -> None:
    """The class is read from JSON; a policy class of one's own wants --algo."""
    import json
    import zipfile

    path = tmp_path / "own.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data", json.dumps({"policy_class": {"__module__": "my.policies"}}))
        archive.writestr("policy.pth", b"")
    with pytest.raises(ValueError, match=r"does not tell its algorithm .*'my.policies'.*--algo"):
        class_of(path)
    assert class_of(path, "PPO") == ("stable_baselines3", "PPO")


def test_logits_that_a_model_has_are_taken(tmp_path: Path) -> None:
    path = sb3("PPO", "CartPole-v1", tmp_path)
    model = load_model(str(path), "CartPole-v1")
    assert logits_for(model, None, "PPO")(np.zeros((3, 4), np.float32)).shape == (3, 2)


def test_an_environment_that_does_not_exist_is_refused_in_one_line() -> None:
    with pytest.raises(ValueError, match="CartPole"):
        make_env("CartPol-v1")
    assert make_env("Pendulum-v1", 7).spec.max_episode_steps == 7  # type: ignore[union-attr]
