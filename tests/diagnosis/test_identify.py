"""What is easily taken for something else: delays, gains, winds, edited models."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import windward as ww
from windward.diagnosis import changes
from windward.diagnosis.explanation import Settings
from windward.diagnosis.parameters import Sizes, atoms_of, parameters_of
from windward.diagnosis.places import lateness, possible, ranking
from windward.diagnosis.residuals import Direction, Residuals, Rows
from windward.diagnosis.selection import Data
from windward.diagnosis.wind import Wind
from windward.envs import Changed, Disturbed
from windward.policies import load
from windward.simulators import simulator
from windward.simulators.parameters import MujocoParameters, arrays_of

SEED = 921


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """MuJoCo writes a log into the working directory when it warns."""
    monkeypatch.chdir(tmp_path)


def found_in(world: gym.Env, steps: int, model: Any = None, **options: Any) -> Any:
    return ww.diagnose(model, world, steps=steps, seed=SEED, threads=1, **options)


def edited(name: str, edit: Callable[[Any], None]) -> gym.Env:
    env = gym.make(name)
    edit(env.unwrapped.model)  # type: ignore[attr-defined]
    return env


# --- late actions ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["InvertedPendulum-v5", "CartPole-v1", "Pendulum-v1"])
def test_a_delay_that_leaves_exactly_nothing_is_found(name: str) -> None:
    found = found_in(Changed(gym.make(name), {"delay": 1}), 200)
    assert found.values == {"delay": 1}
    assert found.unexplained == 0.0


def test_a_long_delay_is_no_wind_on_the_action() -> None:
    found = found_in(Changed(gym.make("Hopper-v5"), {"delay": 6}), 160)
    assert found.values == {"delay": 6}
    assert found.wind is None


def test_pushes_on_the_action_are_told_from_late_actions_and_gains() -> None:
    env = gym.make("HalfCheetah-v5")
    sim = simulator(env, noisy=False)
    env.reset(seed=SEED)
    rng = np.random.default_rng(SEED)
    u = np.zeros((240, 6))
    for t in range(1, 240):
        u[t] = np.clip(0.8 * u[t - 1] + 0.3 * rng.standard_normal(6), -1, 1)
    parameters = parameters_of(sim.dynamics, None, Sizes())
    for delay, gain, noise in ((3, 0.8, 0.0), (0, 0.7, 0.1)):
        x, done = [sim.state()], np.roll(u, delay, axis=0)
        for each in done:
            pushed = np.clip(gain * each + noise * rng.standard_normal(6), -1, 1)
            x.append(sim.dynamics.advance(x[-1][None], pushed[None], {})[0])
        states = np.array(x)
        none = np.zeros(240, dtype=int)
        rows = Rows(states[:-1], u, states[1:], none, np.arange(240), none).take(slice(10, None))
        scale = np.std(rows.x_next - rows.x, axis=0)
        residuals = Residuals(sim.dynamics, parameters, 1, scale)
        best = lateness(residuals, np.zeros(len(parameters)), rows, 8)[0]
        if delay:
            assert best.delay == delay
            assert best.left < 0.5
        else:
            assert best.left > 0.8


# --- where a wind pushes -----------------------------------------------------------------------


def test_of_places_that_act_alike_the_action_is_first() -> None:
    rng = np.random.default_rng(0)
    effect = rng.standard_normal((60, 2, 1))
    r = np.einsum("tck,tk->tc", effect, rng.standard_normal((60, 1)))
    cart = Direction("force:cart", ("x",), 0.01 * effect, "N")
    pole = Direction("force:pole", ("x",), rng.standard_normal((60, 2, 1)), "N")
    action = Direction("action", ("0",), effect * (1 + 1e-6), "")
    assert ranking(r, [cart, pole, action])[0] == ("action", [0])
    other = np.einsum("tck,tk->tc", pole.effect, rng.standard_normal((60, 1)))
    assert ranking(other, [cart, pole, action])[0] == ("force:pole", [0])


def test_a_gain_shows_beside_noise_on_the_action() -> None:
    name = "InvertedPendulum-v5"
    world = Disturbed(
        Changed(gym.make(name), {"gain": 0.8}), "uniform:bound=0.05", "action", seed=SEED
    )
    found = found_in(world, 600, load(name))
    assert found.wind.place == "action"
    assert found.wind.size == pytest.approx(0.05 / np.sqrt(3), rel=0.1)
    (change,) = found.changes
    # To the data a weaker motor and a heavier cart are the same: one of them, and the note says so.
    assert change in ("gain", "mass:cart")
    if change == "gain":
        assert found.values["gain"] == pytest.approx(0.8, rel=0.04)
    else:
        assert any("mass:cart from gain" in note for note in found.notes)
    assert found.unexplained < 0.01


def test_a_push_beyond_what_the_motor_can_do_is_none_on_the_action() -> None:
    world = Disturbed(gym.make("Pendulum-v1"), "sine:amp=0.25,period=63", "qvel", seed=SEED)
    found = found_in(world, 200)
    assert found.wind.place == "coordinate:1"
    assert found.wind.size == pytest.approx(0.25, rel=0.02)
    assert found.wind.period == pytest.approx(63, rel=0.02)


def test_pushes_within_the_bounds_are_possible() -> None:
    env = gym.make("Pendulum-v1")
    sim = simulator(env, noisy=False)
    residuals = Residuals(sim.dynamics, parameters_of(sim.dynamics, None, Sizes()), 1, np.ones(2))
    u = np.linspace(-2, 2, 50)[:, None]
    none = np.zeros(50, dtype=int)
    rows = Rows(np.zeros((50, 2)), u, np.zeros((50, 2)), none, none, none)
    inward = -0.3 * np.sign(u)
    assert possible(residuals, rows, "action", inward)
    assert not possible(residuals, rows, "action", -3 * inward)
    assert possible(residuals, rows, "coordinate:1", -3 * inward)


def test_what_has_no_place_draws_no_wind() -> None:
    wind = Wind("", "", (), (), 0.0, (), None)
    assert wind.draw(np.random.default_rng(0), 7).shape == (7, 0)


# --- edited models -----------------------------------------------------------------------------


def test_a_mass_written_without_its_inertia_is_no_wind() -> None:
    def heavier(model: Any) -> None:
        model.body_mass[2] *= 1.4

    name = "InvertedPendulum-v5"
    nominal = simulator(gym.make(name), noisy=False)
    found = found_in(edited(name, heavier), 150, simulator=nominal)
    assert found.wind is None
    assert found.unexplained < 1e-6
    assert found.values["mass:pole"] == pytest.approx(1.4, rel=1e-3)
    assert found.values["inertia:pole"] == pytest.approx(1 / 1.4, rel=1e-3)


def test_masses_written_without_derived_constants_are_found() -> None:
    def heavier(model: Any) -> None:
        model.body_mass[1] *= 1.4
        model.body_inertia[1] *= 1.4

    name = "Hopper-v5"
    nominal = simulator(gym.make(name), noisy=False)
    found = found_in(edited(name, heavier), 80, simulator=nominal)
    assert found.wind is None
    assert found.unexplained < 1e-6
    assert found.values == {"mass:torso": pytest.approx(1.4, rel=1e-3)}
    assert any("mj_setConst" in note for note in found.notes)


def test_the_first_derived_constants_stay_to_the_bit() -> None:
    model: Any = gym.make("Hopper-v5").unwrapped.model  # type: ignore[attr-defined]
    model.body_mass[1] *= 1.3
    stale = model.body_invweight0.copy()
    parameters = MujocoParameters(model)
    other: Any = gym.make("Hopper-v5").unwrapped.model  # type: ignore[attr-defined]
    parameters.write_in(other, {})
    np.testing.assert_array_equal(other.body_invweight0, stale)
    mass = {"mass": np.full(4, 2.0)}
    parameters.write_in(other, mass, derive=False)
    np.testing.assert_array_equal(other.body_invweight0, stale)
    parameters.write_in(other, mass)
    assert not np.allclose(other.body_invweight0, stale)


def test_an_edited_model_is_compared_with_a_fresh_one() -> None:
    def heavier(model: Any) -> None:
        model.body_mass[1] *= 1.3

    found = found_in(edited("InvertedPendulum-v5", heavier), 100)
    assert found.values == {"mass:cart": pytest.approx(1.3, rel=1e-3)}
    assert any("fresh InvertedPendulum-v5" in note for note in found.notes)
    plain = found_in(gym.make("InvertedPendulum-v5"), 60)
    assert not plain.notes
    assert not plain.changes


# --- what only shows together ------------------------------------------------------------------


def test_a_ratio_is_said_of_kinds_and_not_of_single_bodies() -> None:
    found = found_in(Changed(gym.make("CartPole-v1"), {"mass": 1.3}), 200)
    (name,) = found.changes
    assert name in ("mass", "gain")
    assert "only ratios show" in str(found)
    single = found_in(Changed(gym.make("Hopper-v5"), {"mass:torso": 1.3}), 120)
    assert set(single.changes) == {"mass:torso"}
    assert "ratio" not in str(single)


def test_changes_that_noise_does_not_tell_apart_are_named() -> None:
    parameters = parameters_of(
        simulator(gym.make("CartPole-v1"), noisy=False).dynamics, ["mass", "gain"], Sizes()
    )
    atoms = atoms_of(parameters)
    names = [each.name for each in atoms]
    A = changes.matrix(atoms, len(parameters))
    direction = np.array([0.9, 0.1, -1.0])  # cart and motor act alike, the pole does not
    direction /= np.linalg.norm(direction)
    covariance = np.eye(3) - (1 - 0.02**2) * np.outer(direction, direction)
    theta = np.array([0.0, 0.0, -0.4])
    cart, pole, gain = (names.index(each) for each in ("mass:cart", "mass:pole", "gain"))
    swaps = changes.alternatives(theta, covariance, A, (gain,), 0.005)
    assert (gain, cart) in swaps
    sharp = changes.alternatives(theta, 1e-4 * np.eye(3), A, (gain,), 0.005)
    assert (gain, cart) not in sharp
    assert (gain, pole) not in sharp


# --- few and small effects ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seed", "true"),
    [
        (901, {"mass:cart": 1.301, "mass:pole": 0.503}),
        (906, {"mass:cart": 1.369, "mass:pole": 1.491}),
    ],
)
def test_masses_of_a_cart_pole_are_found_along_a_bent_valley(
    seed: int, true: dict[str, float]
) -> None:
    """The pole's mass shows little, and the cart's makes up for it but for a little."""
    world = Changed(gym.make("CartPole-v1"), true)
    found = ww.diagnose(load("CartPole-v1"), world, seed=seed, threads=1).values
    elements = {"mass": ["cart", "pole"], "gain": [""]}
    values = arrays_of(elements, found)
    gain = float(values.get("gain", np.ones(1))[0])
    mass = values.get("mass", np.ones(2)) / gain
    np.testing.assert_allclose(mass, list(true.values()), rtol=0.01)


def test_a_strong_motor_is_no_jump() -> None:
    world = Changed(gym.make("HalfCheetah-v5"), {"gain": 1.755})
    found = ww.diagnose(load("HalfCheetah-v5"), world, steps=200, seed=968, threads=1)
    assert found.values == {"gain": pytest.approx(1.755, rel=1e-3)}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [902, 903, 906])
def test_noise_on_the_action_is_no_gain(seed: int) -> None:
    noisy = Disturbed(gym.make("HalfCheetah-v5"), "uniform:bound=0.05", "action", seed=seed)
    found = ww.diagnose(load("HalfCheetah-v5"), noisy, seed=seed, threads=1)
    assert not found.changes


@pytest.mark.slow
def test_changes_that_leave_most_are_only_suspected() -> None:
    """Softer contacts, which no parameter is."""
    nominal = simulator(gym.make("HalfCheetah-v5"), noisy=False)
    world = edited("HalfCheetah-v5", lambda model: model.geom_solref.__setitem__((..., 0), 0.08))
    found = ww.diagnose(load("HalfCheetah-v5"), world, seed=940, threads=1, simulator=nominal)
    assert found.unexplained > 0.5
    assert not found.changes


def test_where_a_jacobian_is_cheap_noise_is_seen_through_more_steps() -> None:
    settings = Settings(many=100, columns=800)
    count = np.arange(1000)
    nothing = np.zeros((1000, 1))
    rows = Rows(nothing, nothing, nothing, np.zeros(1000, int), count, np.zeros(1000, int))
    data = Data(rows, rows, rows, 1.0)
    assert abs(data.many(settings, 40).size - 100) <= settings.block
    assert abs(data.many(settings, 4).size - 200) <= settings.block
    assert data.many(Settings(columns=900), 1) is rows
