"""D4PG as a whole: it learns, repeats itself, resumes, and refuses what does not fit."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import jax
import numpy as np
import pytest

from windward import files
from windward.agents import D4PG, NotFinite
from windward.agents.actors import Actors
from windward.policies.features import Features, random_projection

SMALL: dict[str, Any] = {
    "widths": (16, 16), "num_atoms": 5, "v_min": -500.0, "v_max": 500.0, "batch_size": 32,
    "min_replay": 50, "replay_size": 5_000, "segment": 200, "num_envs": 2,
}  # fmt: skip


class Identity(gym.Env):
    """One step: the reward is highest when the action is the observation."""

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Box(-2, 2, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.x = self.np_random.uniform(-1, 1, 1).astype(np.float32)
        return self.x, {}

    def step(self, action: np.ndarray) -> Any:
        reward = -float(np.square(action - self.x).sum())
        return self.x, reward, True, False, {}


def short() -> gym.Env:
    return gym.make("Pendulum-v1", max_episode_steps=30)


def pendulum(**changes: Any) -> D4PG:
    return D4PG(changes.pop("env", short), **(SMALL | {"seed": 3} | changes))


def floats(agent: D4PG) -> list[bytes]:
    leaves = jax.tree.leaves(agent._training.learner)
    return [np.asarray(each).tobytes() for each in leaves]


@pytest.mark.parametrize("num_atoms", [11, 1])
def test_it_learns_the_identity_in_seconds(num_atoms: int) -> None:
    agent = D4PG(
        Identity, widths=(32, 32), num_atoms=num_atoms, v_min=-5.0, v_max=0.0, batch_size=64,
        samples_per_insert=64.0, learning_rate=3e-3, replay_size=10_000, min_replay=200, seed=0,
    )  # fmt: skip
    before = agent.evaluate(50).mean()
    agent.learn(600, eval_every=10**9)
    after = agent.evaluate(50).mean()
    assert before < -0.25
    assert after > -0.05


def test_the_same_seed_gives_the_same_floats_and_another_does_not() -> None:
    one, two, other = (pendulum(seed=seed).learn(300, eval_every=150) for seed in (3, 3, 4))
    assert floats(one) == floats(two)
    assert floats(one) != floats(other)
    assert repr(one.log.rows) == repr(two.log.rows)


def test_each_evaluation_plays_other_episodes_and_one_seed_the_same() -> None:
    # No update is made, so that the policy is the same at both evaluations.
    agents = [pendulum(min_replay=1_000).learn(200, eval_every=100) for _ in range(2)]
    first, second = (row["eval_return"] for row in agents[0].log.rows)
    assert first != second
    assert [row["eval_return"] for row in agents[1].log.rows] == [first, second]


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    # one update for 32/9 steps: a part of one is always owed
    odd: dict[str, Any] = {"samples_per_insert": 9.0, "features": "identity"}
    whole = pendulum(**odd).learn(600, eval_every=100, out=tmp_path / "whole")
    pendulum(**odd).learn(400, eval_every=100, out=tmp_path / "parts")
    resumed = pendulum(**odd).learn(600, eval_every=100, out=tmp_path / "parts")
    assert resumed.num_timesteps == 600
    assert floats(resumed) == floats(whole)
    texts = [(tmp_path / part / "curves.csv").read_text() for part in ("whole", "parts")]
    assert texts[0] == texts[1]


class Stop(Exception):
    pass


def test_a_run_that_was_killed_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    whole = pendulum().learn(600, eval_every=100, out=tmp_path / "whole")

    def kill(agent: D4PG) -> None:
        if agent.num_timesteps >= 300:
            raise Stop

    with pytest.raises(Stop):
        pendulum().learn(600, kill, eval_every=100, out=tmp_path / "parts")
    resumed = pendulum().learn(600, eval_every=100, out=tmp_path / "parts")
    assert floats(resumed) == floats(whole)
    assert repr(resumed.log.rows) == repr(whole.log.rows)


def test_a_finished_run_is_not_repeated(tmp_path: Path) -> None:
    pendulum().learn(200, eval_every=100, out=tmp_path)
    called: list[int] = []
    again = pendulum()
    again.learn(200, lambda agent: called.append(1), eval_every=100, out=tmp_path)
    assert again.num_timesteps == 200
    assert called == []


def test_a_callback_stops_learning() -> None:
    agent = pendulum().learn(600, lambda agent: False, eval_every=100)
    assert agent.num_timesteps == 100


def test_saving_and_loading(tmp_path: Path) -> None:
    agent = pendulum(env="Pendulum-v1").learn(200, eval_every=10**9)
    agent.save(tmp_path / "agent.npz")
    twin = D4PG.load(tmp_path / "agent.npz")
    x = np.random.default_rng(0).normal(size=(5, 3))
    np.testing.assert_array_equal(agent.predict(x)[0], twin.predict(x)[0])
    assert floats(agent) == floats(twin)
    assert twin.settings == agent.settings


def test_actions_have_the_shape_and_range_of_the_space() -> None:
    agent = pendulum()
    one, state = agent.predict(np.zeros(3))
    many, _ = agent.predict(np.zeros((7, 3)))
    assert (one.shape, many.shape, state) == ((1,), (7, 1), None)
    assert one.dtype == np.float32
    assert (np.abs(many) <= 2).all()
    with pytest.raises(ValueError, match="observation must have shape"):
        agent.predict(np.zeros(4))


@pytest.mark.parametrize(
    ("action", "observation", "message"),
    [
        (gym.spaces.Discrete(2), gym.spaces.Box(-1, 1, (2,)), "continuous actions.*Discrete"),
        (gym.spaces.Box(-np.inf, np.inf, (2,)), gym.spaces.Box(-1, 1, (2,)), "unbounded"),
        (gym.spaces.Dict({}), gym.spaces.Box(-1, 1, (2,)), "continuous actions.*Dict"),
        (gym.spaces.Box(0, 9, (2,), int), gym.spaces.Box(-1, 1, (2,)), "whole numbers"),
        (gym.spaces.Box(-1, 1, (2,)), gym.spaces.Dict({}), "Dict.*FlattenObservation"),
        (gym.spaces.Box(-1, 1, (2,)), gym.spaces.Discrete(3), "Discrete.*FlattenObservation"),
    ],
)
def test_spaces_that_do_not_fit_are_refused_by_name(
    action: gym.Space, observation: gym.Space, message: str
) -> None:
    class Odd(Identity):
        action_space = action
        observation_space = observation

    with pytest.raises(ValueError, match=message):
        D4PG(Odd)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_atoms": 0}, "num_atoms"),
        ({"gamma": 1.5}, "gamma"),
        ({"v_min": 5.0, "v_max": 1.0}, "v_min must be below v_max"),
        ({"min_replay": 10, "replay_size": 5}, "min_replay"),
        ({"widths": ()}, "widths"),
        ({"sigma": -0.1}, "sigma"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        D4PG("Pendulum-v1", **settings)


def test_a_loss_that_is_not_finite_stops_and_keeps_the_checkpoint(tmp_path: Path) -> None:
    agent = pendulum().learn(200, eval_every=10**9, out=tmp_path)
    kept = (tmp_path / "last.npz").read_bytes()
    broken = {
        name: np.full_like(each, np.nan) for name, each in agent._training.learner.critic.items()
    }
    agent._training.learner = agent._training.learner._replace(critic=broken)
    with pytest.raises(NotFinite, match="last checkpoint is as it was"):
        agent.learn(600, eval_every=10**9, out=tmp_path)
    assert (tmp_path / "last.npz").read_bytes() == kept


def test_a_policy_that_blows_up_is_told_from_a_broken_environment() -> None:
    """And the agent acts by the last networks that were finite."""
    agent = pendulum(learning_rate=1e38)
    with np.errstate(all="ignore"), pytest.raises(NotFinite):
        agent.learn(2_000, eval_every=10**9)
    assert np.isfinite(agent.predict(agent.observation_space.sample())[0]).all()


def test_learning_does_not_nest() -> None:
    agent = pendulum()
    with pytest.raises(ValueError, match="learning already"):
        agent.learn(400, lambda each: bool(each.learn(800)), eval_every=200)
    agent.learn(agent.num_timesteps + 100, eval_every=10**9)  # and it goes on


def test_a_callback_that_is_none_is_refused_before_work() -> None:
    agent = pendulum()
    with pytest.raises(ValueError, match="callback must be a function"):
        agent.learn(400, callback=[print])  # type: ignore[arg-type]
    assert agent.num_timesteps == 0


def test_scalars_are_on_disk_when_an_evaluation_is_over(tmp_path: Path) -> None:
    sizes = []

    def look(_: D4PG) -> None:
        (events,) = tmp_path.glob("events*")
        sizes.append(events.stat().st_size)

    pendulum().learn(600, look, out=tmp_path, eval_every=200)
    assert 0 < sizes[0] < sizes[1] < sizes[2]


def test_each_call_of_learn_begins_elsewhere() -> None:
    agent, begun = pendulum(), []
    reset = Actors.reset

    def watched(self: Actors, seeds: list[int], *rest: Any) -> None:
        begun.append(tuple(seeds))
        reset(self, seeds, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Actors, "reset", watched)
        for steps in (40, 80, 120):
            agent.learn(steps, eval_every=10**9)
    assert len(set(begun)) == 3


def test_rewards_that_are_not_finite_are_named() -> None:
    class Broken(Identity):
        def step(self, action: np.ndarray) -> Any:
            return self.x, np.nan, True, False, {}

    with pytest.raises(ValueError, match="reward of nan"):
        D4PG(Broken, **SMALL).learn(10)


@pytest.mark.parametrize("damage", [b"", b"not a file of arrays", None])
def test_a_damaged_file_is_refused(tmp_path: Path, damage: bytes | None) -> None:
    path = tmp_path / "agent.npz"
    pendulum().save(path)
    path.write_bytes(path.read_bytes()[:-200] if damage is None else damage)
    with pytest.raises(ValueError, match="damaged"):
        D4PG.load(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no file"):
        D4PG.load(tmp_path / "none.npz")


def test_an_agent_of_another_environment_is_refused(tmp_path: Path) -> None:
    pendulum(env="Pendulum-v1").save(tmp_path / "agent.npz")
    with pytest.raises(ValueError, match=r"another environment or agent \(Pendulum-v1\)"):
        D4PG.load(tmp_path / "agent.npz", env="InvertedPendulum-v5")


def test_a_checkpoint_with_other_settings_is_refused(tmp_path: Path) -> None:
    pendulum().learn(200, eval_every=10**9, out=tmp_path)
    with pytest.raises(ValueError, match=r"other settings.*sigma"):
        pendulum(sigma=0.1).learn(400, out=tmp_path)
    with pytest.raises(ValueError, match=r"other settings.*seed was 3, now 9"):
        pendulum(seed=9).learn(400, out=tmp_path)
    with pytest.raises(ValueError, match=r"\(eval_every was 1000000000, now 100\): give another"):
        pendulum().learn(400, out=tmp_path, eval_every=100)
    with pytest.raises(ValueError, match=r"\(eval_episodes was 5, now 6\): give another folder"):
        pendulum().learn(400, out=tmp_path, eval_every=10**9, eval_episodes=6)


def test_an_agent_goes_on_with_the_same_evaluations(tmp_path: Path) -> None:
    agent = pendulum().learn(200, eval_every=10**9, out=tmp_path)
    with pytest.raises(ValueError, match=r"was evaluated with .*: give the same ones, or no out"):
        agent.learn(400, eval_every=100, out=tmp_path)
    assert agent.learn(240, eval_every=100).num_timesteps == 240  # nothing is written


def test_a_checkpoint_that_does_not_tell_its_evaluations_goes_on(tmp_path: Path) -> None:
    """It is of an earlier version."""
    pendulum().learn(200, eval_every=10**9, out=tmp_path)
    arrays, header = files.read(tmp_path / "last.npz", "windward.D4PG checkpoint")
    del header["evaluation"]
    files.write(tmp_path / "last.npz", arrays, header)
    assert pendulum().learn(400, eval_every=100, out=tmp_path).num_timesteps == 400


def test_returns_beyond_the_atoms_warn() -> None:
    agent = pendulum(v_min=-1.0, v_max=1.0, segment=500)
    with pytest.warns(UserWarning, match="set v_min and v_max"):
        agent.learn(500, eval_every=10**9)


def test_a_vector_head_learns_beside_and_leaves_the_agent_alone(tmp_path: Path) -> None:
    plain, with_head = pendulum(), pendulum(features="identity")
    for agent in (plain, with_head):
        agent.learn(400, eval_every=200)
    for name in ("policy", "critic", "target_policy", "target_critic"):
        one, two = (getattr(agent._training.learner, name) for agent in (plain, with_head))
        assert all(np.array_equal(one[part], two[part]) for part in one)
    assert [row["eval_return"] for row in plain.log.rows] == [
        row["eval_return"] for row in with_head.log.rows
    ]
    with_head.save(tmp_path / "agent.npz")
    x, u = np.ones((5, 3)), np.ones((5, 1))
    values, loaded = (
        each.vector_values() for each in (with_head, D4PG.load(tmp_path / "agent.npz", short))
    )
    assert values.d_w == 3
    np.testing.assert_array_equal(values.c(x), x)
    np.testing.assert_array_equal(values.Q(x, u), loaded.Q(x, u))
    np.testing.assert_allclose(values.V(x), values.Q(x, with_head.predict(x)[0]), rtol=1e-5)
    with pytest.raises(ValueError, match="no vector head"):
        plain.vector_values()


def test_a_file_of_another_version_is_refused_in_words(tmp_path: Path) -> None:
    path = tmp_path / "agent.npz"
    pendulum(env="Pendulum-v1").save(path)
    arrays, header = files.read(path, "windward.D4PG")
    files.write(path, arrays, {**header, "settings": {**header["settings"], "warp": 9}})
    with pytest.raises(ValueError, match=r"does not know \(warp\).*another version"):
        D4PG.load(path)
    files.write(path, arrays, {name: header[name] for name in ("kind", "env", "seed")})
    with pytest.raises(ValueError, match=r"has no 'settings': it was written by another version"):
        D4PG.load(path)


def test_episodes_are_cut_where_checkpoints_are() -> None:
    agent = pendulum(env="Pendulum-v1").learn(200, eval_every=10**9)
    replay = agent._training.replay
    assert replay is not None
    assert len(replay) == 200  # also the last n - 1 steps of each of the two environments
    lengths = np.round(np.log(replay.discount[:200]) / np.log(agent.settings.gamma)).astype(int)
    assert sorted(lengths)[:8] == [1, 1, 2, 2, 3, 3, 4, 4]


def test_a_run_that_is_stopped_keeps_what_it_learned() -> None:
    class Once(gym.Wrapper):
        life = 0

        def step(self, action: Any) -> Any:
            Once.life += 1
            if Once.life == 400:
                raise KeyboardInterrupt
            return super().step(action)

    agent = pendulum(env=lambda: Once(gym.make("Pendulum-v1")), segment=10_000)
    before = agent.networks["policy"]["w0"].copy()
    with pytest.raises(KeyboardInterrupt):
        agent.learn(2_000, eval_every=10**9)
    assert agent._training.learner.steps > 100
    assert not np.array_equal(agent.networks["policy"]["w0"], before)
    x = np.ones((3, 3))
    np.testing.assert_allclose(agent.critic.V(x), agent.critic.Q(x, agent.predict(x)[0]), rtol=1e-5)


def test_numbers_of_numpy_are_settings_too(tmp_path: Path) -> None:
    odd: dict[str, Any] = {
        "seed": np.int64(3), "widths": (np.int64(8),), "learning_rate": np.float32(1e-3)
    }  # fmt: skip
    pendulum(**odd).save(tmp_path / "agent.npz")
    assert D4PG.load(tmp_path / "agent.npz", short).settings.widths == (8,)
    for bad in ({"learning_rate": [1e-3, 1e-4]}, {"v_min": -np.inf}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            pendulum(**bad)


def test_a_folder_of_another_environment_or_another_run_is_refused(tmp_path: Path) -> None:
    pendulum(env="InvertedPendulum-v5").learn(200, eval_every=100, out=tmp_path)
    with pytest.raises(ValueError, match="another environment, InvertedPendulum-v5"):
        pendulum(env="windward/SinePendulum-v0").learn(400, out=tmp_path)
    loaded = D4PG.load(tmp_path / "last.npz")  # a checkpoint is an agent, too
    assert loaded.num_timesteps == 200
    with pytest.raises(ValueError, match="holds another run"):
        loaded.learn(400, out=tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="out must be a folder"):
        pendulum().learn(100, out=tmp_path / "file")


def test_an_environment_with_options_has_no_plain_id(tmp_path: Path) -> None:
    assert pendulum(env=gym.make("Pendulum-v1", render_mode=None)).env_id == "Pendulum-v1"
    agent = pendulum(env=gym.make("Pendulum-v1", g=1.0))
    assert agent.env_id is None
    agent.save(tmp_path / "agent.npz")
    with pytest.raises(ValueError, match="does not name its environment"):
        D4PG.load(tmp_path / "agent.npz")


def test_features_must_be_those_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "agent.npz"
    space = pendulum().observation_space
    x = np.ones((1, 3))

    def identity(x: np.ndarray) -> np.ndarray:
        return 2 * x

    for features in (random_projection(space, 2, seed=5), np.ones((2, 3)), identity):
        agent = pendulum(features=features)
        agent.save(path)
        if isinstance(features, Features):
            back = D4PG.load(path, short)
        else:
            with pytest.raises(ValueError, match=r"pass features= again"):
                D4PG.load(path, short)
            back = D4PG.load(path, short, features=features)
        np.testing.assert_array_equal(back.vector_values().c(x), agent.vector_values().c(x))
        with pytest.raises(ValueError, match="is of other features"):
            D4PG.load(path, short, features="identity")
