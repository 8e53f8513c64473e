"""The host path equals the scan of `windward.linear.simulate`: one algorithm, two drivers."""

import numpy as np
import pytest

import windward as ww

from .worlds import (
    GAMMA,
    SYSTEM,
    X0,
    A,
    B,
    HandMade,
    K,
    Plant,
    Q,
    R,
    ScalarValues,
    VectorValues,
    drive,
    true_w,
    wind,
)

pytestmark = pytest.mark.usefixtures("x64")

T, H, SEED = 300, 3, 5  # longer than a block of draws
ETA, SIGMA = 2e-3, 0.1
M0 = 0.1 * np.random.default_rng(1).normal(size=(H, 1, 2))
SETTINGS = {
    "h": H, "eta": ETA, "sigma": SIGMA, "M0": M0, "every_steps": 7, "guard": False,
    "learner": "mf-gpc",
}  # fmt: skip
TIGHT = {"rtol": 1e-9, "atol": 1e-9}


def scanned(signal, d_w=2, seed=SEED, settings=SETTINGS):
    """The pure run."""
    gamma = {"gamma": GAMMA} if signal in ("pd1", "pd2") else {}
    settings = dict(settings)
    learner = settings.pop("learner")
    settings.pop("guard")
    if learner != "mf-gpc":
        settings["gradient"] = learner
    algorithm = ww.mf_gpc(1, d_w, signal=signal, **{**gamma, **settings})
    return ww.linear.simulate(
        SYSTEM, algorithm, wind(T), K=K, Q=Q, R=R, x0=X0, seed=seed, M_every=1
    )


def assert_equal_runs(plant, told, M, run):
    assert not any(step["clipped"] for step in told)  # or the runs could not be the same
    np.testing.assert_allclose(plant.costs, run.cost, **TIGHT)
    u = (np.array(plant.executed) - plant.middle) / plant.half
    np.testing.assert_allclose(u, run.u, **TIGHT)
    np.testing.assert_allclose([step["w_hat"] for step in told], run.w_hat, **TIGHT)
    np.testing.assert_allclose(M, run.M, **TIGHT)
    assert np.abs(run.M - run.M_history[0]).max() > 1e-3  # it learned


def wrapped(signal, settings=SETTINGS, **options):
    plant = Plant(wind(T), **options)
    return plant, ww.RobustWrapper(plant, signal, seed=SEED, **settings)


def run_wrapped(plant, env):
    x, _ = env.reset(seed=0)
    told, _ = drive(env, plant.base, T, x)
    return told


@pytest.mark.parametrize(("half", "middle"), [(1.0, 0.0), (2.5, 0.0), (0.5, 3.0)])
def test_users_own_signal(half, middle):
    """M and σ act on actions scaled to [-1, 1], whatever the box (deviation 8)."""

    def own(x, u, reward, x_next):
        return true_w(x, (u - middle) / half, reward, x_next)

    plant, env = wrapped(own, half=half, middle=middle)
    told = run_wrapped(plant, env)
    assert_equal_runs(plant, told, env.M, scanned("w"))


def simulated(x, u):
    """The plant without wind, on rows."""
    x_next = x @ A.T + u @ B.T
    cost = np.einsum("ni,ij,nj->n", x, Q, x) + np.einsum("ni,ij,nj->n", u, R, u)
    return x_next, cost, np.zeros(len(x), bool)


def test_pd3_from_a_users_simulator():
    plant = Plant(wind(T))
    simulator = ww.simulator(plant, step=simulated, state=lambda env: env.x, noisy=False)
    env = ww.RobustWrapper(plant, ww.PD3(simulator), seed=SEED, **SETTINGS)
    told = run_wrapped(plant, env)
    assert_equal_runs(plant, told, env.M, scanned("pd3"))


def test_pd3_by_name_with_options():
    plant = Plant(wind(T))
    options = {"step": simulated, "state": lambda env: env.x}
    env = ww.RobustWrapper(plant, "pd3", simulator=options, seed=SEED, **SETTINGS)
    told = run_wrapped(plant, env)
    assert_equal_runs(plant, told, env.M, scanned("pd3"))


@pytest.mark.parametrize("every_steps", [1, 2, 90])
def test_pd2_from_closed_form_values(every_steps):
    """With M held for fewer and for more steps than the host plans at once."""
    settings = {**SETTINGS, "every_steps": every_steps}
    plant, env = wrapped(ww.PD2(VectorValues()), settings)
    told = run_wrapped(plant, env)
    assert_equal_runs(plant, told, env.M, scanned("pd2", settings=settings))


def test_pd1_from_closed_form_values():
    """Costs are negated rewards and V, Q are negated with them: a wrong sign would show."""
    settings = {**SETTINGS, "M0": 0.01 * M0[:, :, :1], "eta": 1e-4}
    plant, env = wrapped(ww.PD1(ScalarValues()), settings)
    told = run_wrapped(plant, env)
    run = scanned("pd1", d_w=1, settings=settings)
    np.testing.assert_allclose(env.M, run.M, **TIGHT)
    np.testing.assert_allclose([step["w_hat"] for step in told], run.w_hat, **TIGHT)
    np.testing.assert_allclose(plant.costs, run.cost, **TIGHT)
    assert np.abs(run.M - run.M_history[0]).max() > 1e-5


@pytest.mark.parametrize("values", [ww.PD2(VectorValues()), true_w], ids=["pd2", "own"])
def test_advantages_from_closed_form_values(values):
    """V of costs at both ends of a step, beside any signal."""
    settings = {**SETTINGS, "learner": "advantage", "eta": 0.05}
    plant = Plant(wind(T))
    env = ww.RobustWrapper(plant, values, model=ScalarValues(), seed=SEED, **settings)
    assert env.learner == "advantage"
    told = run_wrapped(plant, env)
    signal = "pd2" if isinstance(values, ww.PD2) else "w"
    assert_equal_runs(plant, told, env.M, scanned(signal, settings={**settings, "gamma": GAMMA}))


@pytest.mark.parametrize(
    "learning",
    [
        {"learner": "response", "eta": 0.2},
        {"learner": "response", "eta": 0.2, "fit_every": 4, "every_steps": 1},
        {"learner": "quadratic", "eta": 0.2},
        {"learner": "mf-gpc", "baseline": "regression", "eta": 0.1},
    ],
    ids=["response", "response, every 4th", "quadratic", "regression"],
)
def test_fitted_models(learning):
    """What they are fitted to, observations among it, is what the scan has."""
    settings = {**SETTINGS, **learning}
    plant, env = wrapped(true_w, settings)
    assert env.learner == learning["learner"]
    told = run_wrapped(plant, env)
    assert_equal_runs(plant, told, env.M, scanned("w", settings=settings))


def test_values_of_another_discount_are_refused():
    values = ScalarValues()
    values.gamma = GAMMA / 2
    with pytest.raises(ValueError, match=f"discount of {GAMMA}, and those of the advantages"):
        ww.RobustWrapper(Plant(wind(T)), ww.PD2(VectorValues()), model=values, learner="advantage")


def test_policy_in_a_loop_of_ones_own():
    plant = Plant(wind(T))
    policy = ww.robustify(plant.base, plant, true_w, seed=SEED, **SETTINGS)
    x, _ = plant.reset()
    told = []
    for _ in range(T):
        action, _ = policy.predict(x)
        x, reward, terminated, truncated, _ = plant.step(action)
        report = policy.observe(reward, x, terminated, truncated)
        told.append({name: each[0] for name, each in report._asdict().items()})
    assert_equal_runs(plant, told, policy.M, scanned("w"))


def test_policy_with_the_live_simulator():
    plant = Plant(wind(T))
    policy = ww.robustify(
        plant.base, plant, "pd3", live=True, seed=SEED,
        simulator={"step": simulated, "state": lambda env: env.x}, **SETTINGS,
    )  # fmt: skip
    x, _ = plant.reset()
    told = []
    for _ in range(T):
        action, _ = policy.predict(x)
        x, reward, terminated, truncated, _ = plant.step(action)
        report = policy.observe(reward, x, terminated, truncated)
        told.append({name: each[0] for name, each in report._asdict().items()})
    assert_equal_runs(plant, told, policy.M, scanned("pd3"))


def test_seeds_are_those_of_the_scan():
    """Another seed is another stream, the same one in both drivers."""
    plant = Plant(wind(T))
    env = ww.RobustWrapper(plant, true_w, seed=11, **SETTINGS)
    told = run_wrapped(plant, env)
    np.testing.assert_allclose(env.M, scanned("w", seed=11).M, **TIGHT)
    assert np.abs(env.M - scanned("w").M).max() > 1e-3
    assert len(told) == T


def test_algorithm_as_printed():
    """M by hand over short episodes: windows and noise end with them, M is kept."""
    plant = Plant(wind(T), length=7)
    settings = {**SETTINGS, "projection": None, "every_steps": 1}
    env = ww.RobustWrapper(plant, true_w, seed=SEED, **settings)
    hand = HandMade(1, H, ETA, SIGMA, M0)
    x, _ = env.reset()
    for _ in range(60):
        x_next, reward, terminated, truncated, info = env.step(plant.base(x))
        told = info["windward"]
        np.testing.assert_allclose(told["correction"], hand.correction(0), **TIGHT)
        ended = np.array([terminated or truncated])
        w_hat = true_w(x, told["action"], reward, x_next)
        hand.observe(told["noise"][None], np.array([-reward]), w_hat[None], ended, np.array([True]))
        np.testing.assert_allclose(env.M, hand.M, **TIGHT)
        x = env.reset()[0] if ended[0] else x_next
