"""Training with the module on: what is executed, learned, kept in files, refused."""

from functools import cache
from pathlib import Path
from typing import Any

import gymnasium as gym
import jax
import numpy as np
import pytest

import windward as ww
from windward import envs
from windward.agents import D4PG, Robust
from windward.agents.actors import Actors
from windward.agents.adaptation import Adaptation, peek
from windward.policies.networks import policy_numpy

SMALL: dict[str, Any] = {
    "widths": (16, 16), "num_atoms": 5, "v_min": -500.0, "v_max": 500.0, "batch_size": 32,
    "min_replay": 50, "replay_size": 5_000, "segment": 160, "num_envs": 2, "seed": 3,
}  # fmt: skip
PD2 = {"signal": "pd2", "h": 2, "eta": 1e-5}


def windy() -> gym.Env:
    """Short episodes; iid noise and a wind, so that a simulator draws and misses something."""
    env = gym.make("Pendulum-v1", max_episode_steps=30)
    noisy = envs.Disturbed(env, "uniform:bound=0.1", channel="qvel")
    return envs.Disturbed(noisy, "sine:amplitude=0.3,period=20", channel="qvel")


def make(robust: Any = None, **changes: Any) -> D4PG:
    return D4PG(changes.pop("env", windy), **(SMALL | changes), robust=robust)


def floats(agent: D4PG, parts: tuple[str, ...] = ()) -> list[bytes]:
    now = agent._training.learner
    tree = now if not parts else [getattr(now, part) for part in parts]
    return [np.asarray(each).tobytes() for each in jax.tree.leaves(tree)]


def module(agent: D4PG) -> Adaptation:
    assert agent._training.adaptation is not None
    return agent._training.adaptation


BASE = (
    "policy", "critic", "target_policy", "target_critic", "policy_optimiser", "critic_optimiser"
)  # fmt: skip


@cache
def baseline() -> D4PG:
    return make().learn(240, eval_every=120, eval_episodes=2)


@pytest.mark.parametrize("signal", ["pd1", "pd2", "pd3"])
def test_with_eta_0_the_run_is_the_baselines_to_the_bit(signal: str) -> None:
    plain, agent = baseline(), make({"signal": signal, "eta": 0.0})
    agent.learn(240, eval_every=120, eval_episodes=2)
    assert floats(agent, BASE) == floats(plain, BASE)
    mine, theirs = agent._training, plain._training
    assert mine.exploring.bit_generator.state == theirs.exploring.bit_generator.state
    assert mine.replay is not None
    assert theirs.replay is not None
    for name in ("x", "u", "reward", "discount", "x_next"):
        np.testing.assert_array_equal(getattr(mine.replay, name), getattr(theirs.replay, name))
    assert not agent.M.any()
    curves = ["train_return"] if signal == "pd1" else ["train_return", "eval_return"]
    for name in curves:  # PD1 is evaluated with its noise
        assert [row[name] for row in agent.log.rows] == [row[name] for row in plain.log.rows]
    assert agent.log.rows[-1]["w_hat_norm"] > 0.01


@pytest.mark.parametrize(
    "robust",
    [
        {"signal": "pd1", "eta": 1e-7, "every_episodes": None},
        {"signal": "pd2", "form": "critic_units", "weight_decay": 1.0},
        {"signal": "pd3", "coordinates": "state", "simulator": {"noisy": False}},
    ],
)
def test_every_signal_moves_M_and_the_same_seed_gives_the_same_floats(
    robust: dict[str, Any],
) -> None:
    one, two = (make(robust).learn(160, eval_every=160, eval_episodes=1) for _ in range(2))
    assert np.abs(one.M).max() > 0
    np.testing.assert_array_equal(one.M, two.M)
    assert floats(one) == floats(two)
    assert repr(one.log.rows) == repr(two.log.rows)
    row = one.log.rows[-1]
    assert row["M_norm"] == pytest.approx(np.linalg.norm(one.M))
    assert 0 <= row["clipped"] <= 1
    assert row["refused"] == 0


class Steps:
    """Writes down what the module is told and does."""

    def __init__(self, agent: D4PG, monkeypatch: pytest.MonkeyPatch) -> None:
        self.agent, self.seen = agent, []  # type: ignore[var-annotated]
        observe, engine = module(agent).engine.observe, module(agent).engine

        def noted(step: Any, learn: bool = True, unit: Any = None) -> Any:
            correction = engine.correction.copy()
            told = observe(step, learn, unit)
            if step.valid.all():
                ended = step.terminated | step.truncated
                self.seen.append((step.c.copy(), told.w_hat.copy(), correction, ended.copy()))
            return told

        monkeypatch.setattr(engine, "observe", noted)


def test_the_correction_and_the_gradient_are_the_papers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Σ M_i ŵ_{t-i}, and M moves by -η Σ_t c_t Σ_i (σ²)⁻¹ n_{t-i} ⊗ ŵ, rows averaged."""
    h, eta, sigma = 2, 1e-5, 0.3
    robust = {"signal": "pd2", "h": h, "eta": eta, "radius": None, "weight_decay": 2.0}
    agent = make(robust, sigma=sigma, segment=10_000)
    steps = Steps(agent, monkeypatch)
    stream = np.random.default_rng(np.random.SeedSequence(SMALL["seed"], spawn_key=(2,)))
    agent.learn(200, eval_every=10**9)

    # 2 environments, episodes of 30 steps: 2 end at a time, and the third with the fourth.
    M, total, episodes = np.zeros_like(agent.M, dtype=float), 0.0, 0
    windows: list[list[np.ndarray]] = [[], []]  # newest first
    draws: list[list[np.ndarray]] = [[], []]
    moves = 0
    for c, w_hat, correction, ended in steps.seen:
        epsilon = stream.standard_normal((2, 1))
        gradient = np.zeros_like(M)
        for b in range(2):
            past = windows[b] + [np.zeros(3)] * (2 * h)
            expected = sum(M[i] @ past[i] for i in range(h))
            np.testing.assert_allclose(correction[b], expected, rtol=2e-3, atol=1e-4)
            draws[b].insert(0, epsilon[b] / sigma)
            for i, score in enumerate(draws[b][:h]):
                window = np.stack(past[i : i + h])
                gradient += c[b] * np.einsum("u,iw->iuw", score, window) / 2
            windows[b].insert(0, w_hat[b].astype(float))
            if ended[b]:
                windows[b], draws[b] = [], []
        total, episodes = total + gradient, episodes + int(ended.sum())
        if episodes >= 3:
            M = M - eta * (total + 2.0 * M)
            total, episodes, moves = np.zeros_like(M), 0, moves + 1
    assert moves >= 1
    np.testing.assert_allclose(agent.M, M, rtol=2e-3, atol=1e-5)


def test_the_replay_holds_what_was_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    executed: list[np.ndarray] = []

    class Recorded(gym.Wrapper):
        def step(self, action: Any) -> Any:
            executed.append(np.array(action))
            return super().step(action)

    robust = {"signal": "pd2", "eta": 1e-3, "every_episodes": None}
    agent = make(robust, env=lambda: Recorded(windy()), num_envs=1, n_step=1, sigma=0.6)
    wanted: list[np.ndarray] = []
    step = Actors.step

    def noted(self: Any, policy: Any, rng: Any, cut: bool = False) -> None:
        noise = peek(rng, (1, 1))
        wanted.append(policy_numpy(policy, self._x) + module(agent).engine.correction + 0.6 * noise)
        step(self, policy, rng, cut)

    monkeypatch.setattr(Actors, "step", noted)
    agent.learn(150, eval_every=10**9)
    replay = agent._training.replay
    assert replay is not None
    np.testing.assert_array_equal(2.0 * replay.u[:150], np.array(executed))
    scaled = np.concatenate(wanted)
    np.testing.assert_array_equal(replay.u[:150], np.clip(scaled, -1, 1).astype(np.float32))
    share = (np.abs(scaled) > 1).mean()
    assert 0 < share < 1
    assert module(agent).report()["clipped"] == pytest.approx(share)
    assert np.abs(agent.M).max() > 0.01


@pytest.mark.parametrize("signal", ["pd1", "pd2"])
def test_values_are_of_the_networks_that_are_acted_with(
    signal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, step = make({"signal": signal, "h": 2, "eta": 0.0}), Actors.step
    policies: list[bytes] = []

    def checked(self: Any, policy: Any, rng: Any, cut: bool = False) -> None:
        source: Any = module(agent).source
        values = source.critic if signal == "pd1" else source.values
        assert all(np.array_equal(values._policy[name], policy[name]) for name in policy)
        policies.append(b"".join(policy[name].tobytes() for name in sorted(policy)))
        step(self, policy, rng, cut)

    monkeypatch.setattr(Actors, "step", checked)
    agent.learn(160, eval_every=10**9)
    assert len(set(policies)) > 10
    x, u = np.ones((4, 3), np.float32), np.ones((4, 1), np.float32)
    source: Any = module(agent).source
    mine, now = (
        (source.critic, agent.critic) if signal == "pd1" else (source.values, agent.vector_values())
    )
    np.testing.assert_array_equal(mine.Q(x, u), now.Q(x, u))
    np.testing.assert_array_equal(mine.V(x), now.V(x))


@pytest.mark.parametrize(
    ("update", "learning"),
    [
        ("values", {"critic", "vector"}), ("base", {"policy"}), ("neither", set())
    ],
)  # fmt: skip
def test_only_the_networks_that_update_names_learn(update: str, learning: set[str]) -> None:
    agent = make({**PD2, "update": update})
    names = ("policy", "critic", "vector")
    before = {name: floats(agent, (name,)) for name in names}
    agent.learn(160, eval_every=160, eval_episodes=1)
    assert {name for name in names if floats(agent, (name,)) != before[name]} == learning
    assert np.abs(agent.M).max() > 0
    losses = {"critic_loss": "critic", "policy_loss": "policy", "vector_loss": "vector"}
    for column, name in losses.items():
        assert np.isfinite(agent.log.rows[-1][column]) == (name in learning)
    assert (agent._training.learner.steps > 0) == bool(learning)


@pytest.mark.parametrize("signal", ["pd2", "pd3"])
def test_a_resumed_run_equals_an_uninterrupted_one(signal: str, tmp_path: Path) -> None:
    robust = {"signal": signal, "eta": 1e-6, "every_episodes": 4}  # 2 are pending at 160
    learn: dict[str, Any] = {"eval_every": 100, "eval_episodes": 1}
    whole = make(robust).learn(320, out=tmp_path / "whole", **learn)
    make(robust).learn(160, out=tmp_path / "parts", **learn)
    resumed = make(robust).learn(320, out=tmp_path / "parts", **learn)
    assert floats(resumed) == floats(whole)
    one, two = (jax.tree.leaves(module(each).engine.state) for each in (whole, resumed))
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))
    assert np.abs(whole.M).max() > 0
    texts = [(tmp_path / part / "curves.csv").read_text() for part in ("whole", "parts")]
    assert texts[0] == texts[1]
    assert "M_norm,w_hat_norm,clipped,refused" in texts[0]
    if signal == "pd2":
        with pytest.raises(ValueError, match=r"settings \(robust.eta was 1e-06, now 0.001\)"):
            make({**robust, "eta": 1e-3}).learn(480, out=tmp_path / "parts", **learn)
        with pytest.raises(ValueError, match=r"settings \(robust.signal was pd2, now None; robus"):
            make(features="identity").learn(480, out=tmp_path / "parts", **learn)


def test_evaluation_has_M_at_rest_and_no_noise(tmp_path: Path) -> None:
    agent = make({**PD2, "update": "neither"}).learn(160, eval_every=10**9)
    agent.M = np.full((2, 1, 3), 0.05)
    state = [np.array(each) for each in jax.tree.leaves(module(agent).engine.state)]
    rng = agent._training.exploring.bit_generator.state
    once, twice = (agent.evaluate(2, seed=5) for _ in range(2))
    np.testing.assert_array_equal(once, twice)
    for before, after in zip(state, jax.tree.leaves(module(agent).engine.state), strict=True):
        np.testing.assert_array_equal(before, after)
    assert agent._training.exploring.bit_generator.state == rng
    alone = agent.evaluate(2, seed=5, base=True)
    assert (alone != once).all()
    np.testing.assert_array_equal(alone, make().evaluate(2, seed=5))  # never learned

    # The same with the wrapper, and after a file.
    agent.save(tmp_path / "agent.npz")
    back = D4PG.load(tmp_path / "agent.npz", windy)
    np.testing.assert_array_equal(back.M, agent.M)
    np.testing.assert_array_equal(back.evaluate(2, seed=5), once)
    env = ww.RobustWrapper(windy(), "pd2", model=back, M0=back.M, h=2)
    env.freeze()
    from windward.agents.training import seed_of

    x, _ = env.reset(seed=seed_of(5, 3, 0))
    total, over = 0.0, False
    while not over:
        x, reward, terminated, truncated, _ = env.step(back.predict(x)[0])
        total, over = total + float(reward), bool(terminated or truncated)
    assert total == pytest.approx(once[0])


def test_another_module_on_a_trained_agent(tmp_path: Path) -> None:
    path = tmp_path / "agent.npz"
    baseline().save(path)
    robust = {"signal": "pd3", "update": "neither", "eta": 1e-3, "every_episodes": 1}
    agent = D4PG.load(path, windy, robust=robust)
    assert not agent.M.any()
    agent.learn(agent.num_timesteps + 160, eval_every=10**9)
    assert np.abs(agent.M).max() > 0
    assert floats(agent, ("policy", "critic")) == floats(baseline(), ("policy", "critic"))
    with pytest.raises(ValueError, match=r"no vector head for pd2.*critic_units"):
        D4PG.load(path, windy, robust={"signal": "pd2"})
    with pytest.raises(AttributeError, match="made without robust"):
        _ = baseline().M
    with pytest.raises(ValueError, match=r"M must be finite and of shape \(5, 1, 3\)"):
        agent.M = np.zeros((5, 1, 2))


def test_a_signal_that_fails_is_said_counted_and_not_learned_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = make({"signal": "pd3", "every_episodes": None, "eta": 1e-4})
    calls = iter(range(10**6))

    def sometimes(method: Any) -> Any:
        def called(self: Any, given: Any) -> Any:
            if next(calls) % 7 == 0:
                raise RuntimeError("the physics blew up")
            return method(self, given)

        return called

    for name in ("before", "after"):
        monkeypatch.setattr(ww.PD3, name, sometimes(getattr(ww.PD3, name)))
    with pytest.warns(UserWarning, match="the physics blew up"):
        agent.learn(80, eval_every=10**9)
    row = module(agent).report()
    assert 0.2 < row["refused"] < 0.4
    assert np.isfinite(agent.M).all()
    assert agent.M.any()


@pytest.mark.parametrize(
    ("robust", "message"),
    [
        ({"signal": "pd4"}, "signal must be one of 'pd1', 'pd2', 'pd3'; got 'pd4'"),
        ({"signal": "pd2", "lr": 1.0, "step": 2}, "robust does not know lr, step; its settings"),
        ({"eta": 1.0}, "robust needs a signal"),
        ("pd2", "robust must be a dictionary"),
        ({"signal": "pd2", "h": 0}, "h must be an integer"),
        ({"signal": "pd2", "eta": -1.0}, "eta must be at least 0"),
        ({"signal": "pd2", "eta": [1.0, 2.0]}, "eta must have 0 dimension"),
        ({"signal": "pd2", "radius": 0.0}, "radius must be greater than 0"),
        ({"signal": "pd2", "every_episodes": 0}, "every_episodes"),
        ({"signal": "pd2", "update": "critic"}, "update must be one of 'both', 'values'"),
        ({"signal": "pd2", "form": "wide"}, "form must be one of"),
        ({"signal": "pd1", "form": "critic_units"}, "form is for pd2; the signal is pd1"),
        ({"signal": "pd2", "simulator": {"copies": 2}}, "simulator is for pd3"),
        ({"signal": "pd3", "simulator": {"step": print}}, "option in simulator must be one of"),
        ({"signal": "pd3", "simulator": {"copies": 0}}, "copies must be an integer"),
        ({"signal": "pd3", "coordinates": "polar"}, "coordinates must be one of"),
    ],
)
def test_bad_settings_are_named(robust: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(robust)


def test_what_cannot_work_is_refused_before_work() -> None:
    with pytest.raises(ValueError, match="sigma must be greater than 0 for signal 'pd1'"):
        make({"signal": "pd1"}, sigma=0.0)
    with pytest.raises(ValueError, match="eta is for training with the module on"):
        Robust(eta=1.0)

    class Own(gym.Env):
        observation_space = gym.spaces.Box(-1, 1, (2, 2), np.float32)
        action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    with pytest.raises(ValueError, match="has no physics of Own"):
        make({"signal": "pd3"}, env=Own)
    with pytest.raises(ValueError, match="too many numbers for PD2"):
        make(PD2, env=Own)


@pytest.mark.slow
def test_it_learns_with_the_module_on() -> None:
    agent = D4PG(
        "InvertedPendulum-v5", widths=(64, 64), min_replay=500, seed=1,
        robust={"signal": "pd2", "eta": 1e-7},
    )  # fmt: skip
    before = agent.evaluate(5).mean()
    agent.learn(15_000, eval_every=10**9)
    assert np.abs(agent.M).max() > 0
    # From 24 D4PG alone has come to 63 to 70 by then, with this seed and these small networks.
    assert agent.evaluate(5).mean() > 2 * before
