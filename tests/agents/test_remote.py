"""D4PG with environments in Ray actors: it learns, keeps the rate, and outlives what dies."""

import os
import re
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import gymnasium as gym
import numpy as np
import pytest

from windward.agents import D4PG, remote
from windward.agents.settings import Settings

ray = pytest.importorskip("ray")

SMALL: dict[str, Any] = {
    "widths": (32, 32), "num_atoms": 11, "v_min": -5.0, "v_max": 0.0, "batch_size": 64,
    "samples_per_insert": 64.0, "learning_rate": 3e-3, "replay_size": 5_000, "min_replay": 100,
    "segment": 150, "num_envs": 1, "n_step": 3,
}  # fmt: skip


class Identity(gym.Env):
    """One step: the reward is highest when the action is the observation."""

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Box(-2, 2, (1,), np.float32)

    def __init__(self, on_step: Callable[[], float | None] = lambda: None) -> None:
        self.on_step = on_step

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.x = self.np_random.uniform(-1, 1, 1).astype(np.float32)
        return self.x, {}

    def step(self, action: np.ndarray) -> Any:
        given = self.on_step()
        reward = -float(np.square(action - self.x).sum()) if given is None else given
        return self.x, reward, True, False, {}


@pytest.fixture(scope="module")
def running() -> Iterator[None]:
    """Ray on this machine, for the whole file: starting it takes seconds."""
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # tests are no package there
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_worker_niceness", "0")  # else whatever else runs here comes first
        remote.connect(2)
    yield
    ray.shutdown()
    ray.cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def agent_of(on_step: Callable[[], float | None] = lambda: None, **changes: Any) -> D4PG:
    return D4PG(lambda: Identity(on_step), seed=0, **(SMALL | changes))


def crew(on_step: Callable[[], float | None] = lambda: None, **changes: Any) -> Any:
    return remote.RemoteActors(
        lambda: Identity(on_step), Settings(**(SMALL | changes)), None, (1, 1, 0), 7
    )


def policy() -> Any:
    return agent_of()._training.acting


def test_it_learns_exactly_so_many_steps_at_the_rate(running: None) -> None:
    agent = agent_of(num_envs=2)
    seen: list[tuple[int, int]] = []

    def count(agent: D4PG) -> None:
        training = agent._training
        assert training.replay is not None
        seen.append((training.replay.inserted, training.learner.steps))

    before = agent.evaluate(50).mean()
    agent.learn(700, count, eval_every=200, eval_episodes=1, backend="ray")
    assert before < -0.25
    assert agent.evaluate(50).mean() > -0.05
    assert agent.num_timesteps == 700
    assert agent._training.replay is not None
    assert agent._training.replay.inserted == 700  # episodes of one step leave none incomplete
    # One update for each transition from the chunk on with which the replay held enough.
    for inserted, updates in seen:
        assert inserted - SMALL["min_replay"] <= updates
        assert updates <= inserted - SMALL["min_replay"] + remote.CHUNK
    assert len(agent._training.recent.returns) == 20


def test_orders_never_go_beyond_what_is_left_and_a_failure_gives_its_steps_back(
    running: None, tmp_path: Path
) -> None:
    once, steps = tmp_path / "once", tmp_path / "steps"
    once.touch()
    steps.mkdir()

    def note() -> None:
        if once.exists():
            once.unlink()
            raise OSError("the simulator is gone")
        with open(steps / str(os.getpid()), "a") as file:
            file.write(".")

    actors = crew(note, num_envs=2)
    taken, total = 0, 5 * remote.CHUNK + 7
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            while taken < total:
                chunk = actors.gather(policy(), total - taken)
                taken += chunk.steps
                assert len(chunk.columns[0]) == chunk.steps
                time.sleep(0.05)  # a slow learner
                stepped = sum(path.stat().st_size for path in steps.iterdir())
                assert taken <= stepped <= min(total, taken + 2 * remote.CHUNK)
    finally:
        actors.close()
    assert taken == total
    assert re.search("actor . failed and is restarted.*simulator is gone", str(said[0].message))


def test_an_actor_that_is_killed_is_replaced(running: None, tmp_path: Path) -> None:
    here, pids = os.getpid(), tmp_path / "pids"  # evaluations step an environment too
    pids.mkdir()

    def note() -> None:
        if os.getpid() != here:
            (pids / str(os.getpid())).touch()

    def kill(agent: D4PG) -> None:
        if len(agent.log.rows) == 1:
            (path,) = pids.iterdir()
            os.kill(int(path.name), signal.SIGKILL)

    agent, out = agent_of(note), tmp_path / "run"
    with pytest.warns(UserWarning, match="actor 0 was lost and is replaced"):
        agent.learn(300, kill, eval_every=100, eval_episodes=1, out=out, backend="ray")
    assert agent.num_timesteps == 300
    assert len(list(pids.iterdir())) == 2
    # What was written can be read.
    again = agent_of().learn(300, eval_every=100, eval_episodes=1, out=out)
    assert again.num_timesteps == 300
    np.testing.assert_array_equal(again.predict([[0.3]])[0], agent.predict([[0.3]])[0])


def test_an_actor_that_is_always_lost_ends_learning(
    running: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "RESTARTS", 0)  # each would take seconds
    actors = crew(lambda: os._exit(3))
    try:
        with pytest.raises(RuntimeError, match="actor 0 was lost 1 times in a row"):
            actors.gather(policy(), 100)
    finally:
        actors.close()


def test_an_environment_that_always_fails_ends_learning_and_keeps_the_checkpoint(
    running: None, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"

    def fail() -> None:
        if broken.exists():
            raise OSError("the simulator is gone")

    agent_of(fail).learn(150, eval_every=10**9, out=tmp_path / "run")
    kept = (tmp_path / "run" / "last.npz").read_bytes()
    broken.touch()
    agent = agent_of(fail)
    with (
        pytest.raises(OSError, match="the simulator is gone") as caught,
        pytest.warns(UserWarning, match="environment of actor 0 failed and is restarted") as said,
    ):
        agent.learn(300, eval_every=10**9, out=tmp_path / "run", backend="ray")
    assert len(said) == remote.RESTARTS
    assert "actor 0 failed 4 times in a row" in caught.value.__notes__[0]
    assert (tmp_path / "run" / "last.npz").read_bytes() == kept


def test_rewards_that_are_not_finite_are_named_as_in_this_process(running: None) -> None:
    messages = []
    for backend in ("local", "ray"):
        with pytest.raises(ValueError, match="environment 0 gave a reward of nan") as caught:
            agent_of(lambda: np.nan).learn(10, backend=backend)
        messages.append((caught.type, str(caught.value)))
    assert messages[0] == messages[1]


def test_a_run_goes_on_from_its_checkpoint(running: None, tmp_path: Path) -> None:
    given: dict[str, Any] = {"eval_every": 100, "eval_episodes": 1, "out": tmp_path}
    first = agent_of(features="identity").learn(150, **given)
    second = agent_of(features="identity").learn(300, backend="ray", **given)
    assert [row["steps"] // 100 for row in second.log.rows] == [1, 2, 3]
    assert second.num_timesteps == 300
    one, two = (each._training.replay for each in (first, second))
    assert one is not None
    assert two is not None
    assert (one.inserted, two.inserted) == (150, 300)
    np.testing.assert_array_equal(one.x[:150], two.x[:150])
    np.testing.assert_array_equal(two.vector[:300], two.x[:300])  # φ(x) = x, over one step
    assert len(np.unique(two.x[:300])) == 300  # other seeds than before


@pytest.mark.parametrize("address", [None, "somewhere"])
@pytest.mark.parametrize("before", [True, False])
def test_ray_is_started_and_ended_only_where_none_is_running(
    monkeypatch: pytest.MonkeyPatch, before: bool, address: str | None
) -> None:
    fake = MagicMock()
    fake.is_initialized.return_value = before
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if address is not None:
        monkeypatch.setenv("RAY_ADDRESS", address)
    crew().close()
    assert fake.init.called == fake.shutdown.called == (not before)
    if not before:
        given = fake.init.call_args.kwargs
        expected = ("local", 1) if address is None else (None, None)  # Ray reads RAY_ADDRESS itself
        assert (given["address"], given["num_cpus"]) == expected


def test_without_ray_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r"needs Ray: pip install 'windward\[ray\]'"):
        agent_of().learn(10, backend="ray")


def test_another_backend_is_refused() -> None:
    with pytest.raises(ValueError, match="backend must be one of 'local', 'ray'"):
        agent_of().learn(10, backend="dask")
