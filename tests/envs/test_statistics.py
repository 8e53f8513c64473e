"""What disturbances and schedules say of themselves in their docstrings, measured.

A blank environment with a wide action channel gives many independent coordinates at once; limits
are five standard errors of the quantity measured, and seeds are fixed.
"""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from windward import envs

WIDE = 4000


class Blank(gym.Env):
    """Nothing happens, forever."""

    def __init__(self, width: int = 3) -> None:
        self.action_space = gym.spaces.Box(-np.inf, np.inf, (width,), np.float64)
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (width,), np.float64)
        self._nothing = np.zeros(width)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        return self._nothing.copy(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        return self._nothing.copy(), 0.0, False, False, {}


def steps_of(env: gym.Env, steps: int, channel: str = "action") -> np.ndarray:
    """The disturbances of the coming steps, (steps, width)."""
    action = np.zeros(env.action_space.shape)
    rows = [env.step(action)[4]["disturbance"][channel] for _ in range(steps)]
    return np.array(rows)


def draws(
    disturbance: Any, steps: int, width: int = 3, when: Any = None, seed: int = 0, episode: int = 0
) -> np.ndarray:
    env = envs.Disturbed(Blank(width), disturbance, "action", when=when)
    env.reset(seed=seed)
    for _ in range(episode):
        env.reset()
    return steps_of(env, steps)


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.corrcoef(a.ravel(), b.ravel())[0, 1])


def test_uniform_fills_its_bounds_evenly() -> None:
    w = draws(envs.Uniform(0.3), 50, WIDE)
    n = w.size
    assert np.abs(w).max() <= 0.3
    assert np.abs(w).max() > 0.3 * (1 - 20 / n)
    assert abs(w.mean()) < 5 * 0.3 / np.sqrt(3 * n)
    counts, _ = np.histogram(w, bins=10, range=(-0.3, 0.3))
    assert np.abs(counts / n - 0.1).max() < 5 * np.sqrt(0.09 / n)


def test_gaussian_has_its_mean_its_scale_and_normal_tails() -> None:
    w = draws(envs.Gaussian(0.2), 50, WIDE)
    n = w.size
    assert abs(w.mean()) < 5 * 0.2 / np.sqrt(n)
    assert w.std() == pytest.approx(0.2, rel=5 / np.sqrt(2 * n))
    assert ((w / 0.2) ** 4).mean() == pytest.approx(3.0, abs=5 * np.sqrt(96 / n))


@pytest.mark.parametrize("disturbance", [envs.Uniform((0.1, 0.2, 0.4)), envs.Gaussian(0.1)])
def test_independent_noise_is_independent_over_coordinates_and_steps(disturbance: Any) -> None:
    n = 10_000
    w = draws(disturbance, n)
    limit = 5 / np.sqrt(n)
    assert np.abs(np.corrcoef(w.T) - np.eye(3)).max() < limit
    for lag in (1, 2, 63, 64, 65, 128):
        for i in range(3):
            assert abs(correlation(w[lag:, i], w[:-lag, i])) < limit


@pytest.mark.parametrize(
    ("disturbance", "unit"),
    [(envs.Uniform((0.0, 0.1, 0.4)), np.sqrt(1 / 3)), (envs.Gaussian((0.0, 0.1, 0.4)), 1.0)],
)
def test_each_coordinate_has_the_size_given_for_it(disturbance: Any, unit: float) -> None:
    w = draws(disturbance, 5000)
    assert not w[:, 0].any()
    np.testing.assert_allclose(
        w[:, 1:].std(axis=0), [0.1 * unit, 0.4 * unit], rtol=5 / np.sqrt(2 * 5000)
    )


def test_ornstein_uhlenbeck_is_stationary_from_its_first_step() -> None:
    w = draws(envs.OrnsteinUhlenbeck(scale=0.5, tau=30.0, mean=2.0), 130, WIDE)
    for t in (0, 1, 63, 64, 65, 129):
        assert w[t].mean() == pytest.approx(2.0, abs=5 * 0.5 / np.sqrt(WIDE))
        assert w[t].std() == pytest.approx(0.5, rel=5 / np.sqrt(2 * WIDE))


@pytest.mark.parametrize("start", [0, 40, 63])
@pytest.mark.parametrize("lag", [1, 5, 20, 66])
def test_ornstein_uhlenbeck_forgets_at_the_stated_rate(start: int, lag: int) -> None:
    w = draws(envs.OrnsteinUhlenbeck(scale=0.5, tau=20.0), 130, WIDE)
    expected = np.exp(-lag / 20)
    error = 5 * (1 - expected**2) / np.sqrt(WIDE)
    assert correlation(w[start], w[start + lag]) == pytest.approx(expected, abs=error)


def test_ornstein_uhlenbeck_is_independent_over_coordinates() -> None:
    w = draws(envs.OrnsteinUhlenbeck(scale=0.5, tau=0.5), 8000)
    a = np.exp(-1 / 0.5)
    limit = 5 * np.sqrt((1 + a**2) / (1 - a**2) / 8000)
    assert np.abs(np.corrcoef(w.T) - np.eye(3)).max() < limit


def test_a_random_walk_starts_at_zero_and_spreads_with_the_root_of_time() -> None:
    w = draws(envs.RandomWalk(scale=0.1, bound=100.0), 130, WIDE)
    assert not w[0].any()
    for t in (1, 10, 64, 129):
        assert w[t].std() == pytest.approx(0.1 * np.sqrt(t), rel=5 / np.sqrt(2 * WIDE))
    jumps = np.diff(w, axis=0)
    assert jumps.std() == pytest.approx(0.1, rel=5 / np.sqrt(2 * jumps.size))
    assert abs(correlation(jumps[1:], jumps[:-1])) < 5 / np.sqrt(jumps.size)


def test_a_random_walk_is_reflected_at_its_bound() -> None:
    w = draws(envs.RandomWalk(scale=0.2, bound=0.5), 130, WIDE)
    assert np.abs(w).max() <= 0.5
    assert np.abs(np.diff(w, axis=0)).max() < 0.2 * 7  # no wrapping round, no jump at a block
    last = w[-1]  # by then evenly spread over the interval
    counts, _ = np.histogram(last, bins=5, range=(-0.5, 0.5))
    assert np.abs(counts / WIDE - 0.2).max() < 5 * np.sqrt(0.16 / WIDE)


def test_a_sinusoid_is_the_formula_in_every_coordinate() -> None:
    amplitude, period, phase = (0.1, 0.2, -0.3), (60.0, 7.0, 12.5), (0.0, 1.0, -2.0)
    t = np.arange(200)[:, None]
    expected = np.array(amplitude) * np.sin(2 * np.pi * t / np.array(period) + np.array(phase))
    w = draws(envs.Sinusoid(amplitude, period, phase), 200)
    np.testing.assert_allclose(w, expected, atol=1e-12)


def test_a_sinusoid_begins_again_in_every_episode() -> None:
    first = draws(envs.Sinusoid(1.0, 9.0), 30)
    np.testing.assert_array_equal(draws(envs.Sinusoid(1.0, 9.0), 30, episode=2), first)


def test_a_random_phase_is_even_over_the_circle_and_new_in_every_episode() -> None:
    sine = envs.Sinusoid(amplitude=1.0, period=60.0, phase="random")
    one, two = draws(sine, 16, WIDE), draws(sine, 16, WIDE, episode=1)
    for w in (one, two):
        assert (w[0] ** 2).mean() == pytest.approx(0.5, abs=5 * np.sqrt(0.125 / WIDE))
        assert abs(w[0].mean()) < 5 * np.sqrt(0.5 / WIDE)
        angle = np.arctan2(w[0], w[15])  # a quarter of a period apart: sine and cosine
        counts, _ = np.histogram(angle, bins=8, range=(-np.pi, np.pi))
        assert np.abs(counts / WIDE - 1 / 8).max() < 5 * np.sqrt(7 / 64 / WIDE)
    assert abs(correlation(one[0], two[0])) < 5 / np.sqrt(WIDE)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"amplitude": 2.0, "period": 4.0}, [2, 2, -2, -2] * 40),
        ({"amplitude": 2.0, "period": 4.0, "duty": 0.25}, [2, -2, -2, -2] * 40),
        ({"amplitude": 1.0, "period": 10.0, "duty": 0.3}, ([1] * 3 + [-1] * 7) * 16),
        ({"amplitude": 1.0, "period": 4.0, "phase": np.pi}, [-1, -1, 1, 1] * 40),
        ({"amplitude": 1.0, "period": 3.0, "duty": 1.0}, [1] * 160),
        ({"amplitude": 1.0, "period": 3.0, "duty": 0.0}, [-1] * 160),
    ],
)
def test_a_square_wave_is_high_for_its_duty_and_then_low(settings: Any, expected: Any) -> None:
    w = draws(envs.SquareWave(**settings), 160, 1)
    np.testing.assert_array_equal(w[:, 0], expected)


def test_bias_is_the_same_at_every_step() -> None:
    np.testing.assert_array_equal(draws(envs.Bias((1.0, 0.0, -2.0)), 70), [[1.0, 0.0, -2.0]] * 70)


@pytest.mark.parametrize("at", [0, 1, 63, 64, 100])
def test_a_step_is_off_before_its_time_and_on_from_then(at: int) -> None:
    w = draws(envs.Step(size=0.5, at=at), 130, 1)[:, 0]
    np.testing.assert_array_equal(w, [0.0] * at + [0.5] * (130 - at))


def test_an_impulse_comes_once_or_again() -> None:
    once = draws(envs.Impulse(size=3.0, at=62, width=4), 200, 1)[:, 0]
    assert np.flatnonzero(once).tolist() == [62, 63, 64, 65]
    again = draws(envs.Impulse(size=3.0, at=5, width=2, every=50), 130, 1)[:, 0]
    assert np.flatnonzero(again).tolist() == [5, 6, 55, 56, 105, 106]
    assert set(again) == {0.0, 3.0}


@pytest.mark.parametrize("columns", [1, 3])
def test_a_recording_is_played_row_by_row_from_the_start_of_every_episode(columns: int) -> None:
    sequence = np.random.default_rng(1).normal(size=(100, columns))
    expected = np.broadcast_to(sequence, (100, 3))
    recorded = envs.Recorded(sequence)
    np.testing.assert_array_equal(draws(recorded, 100), expected)
    np.testing.assert_array_equal(draws(recorded, 100, episode=3), expected)


@pytest.mark.parametrize(("after", "tail"), [("repeat", [1.0, 2.0, 3.0]), ("zero", [0.0] * 3)])
def test_a_recording_goes_on_as_it_was_told(after: Any, tail: list[float]) -> None:
    w = draws(envs.Recorded([1.0, 2.0, 3.0], after=after), 6, 2)
    np.testing.assert_array_equal(w.T, [[1.0, 2.0, 3.0, *tail]] * 2)


@pytest.mark.parametrize("suffix", [".npy", ".csv"])
def test_a_recording_is_read_from_a_file(suffix: str, tmp_path: Any) -> None:
    sequence = np.arange(12.0).reshape(4, 3)
    path = tmp_path / f"wind{suffix}"
    if suffix == ".npy":
        np.save(path, sequence)
    else:
        np.savetxt(path, sequence, delimiter=",")
    np.testing.assert_array_equal(draws(f"recorded:sequence={path}", 4), sequence)


def test_a_recording_covers_a_channel_without_coordinates() -> None:
    class Scalar(Blank):
        def __init__(self) -> None:
            super().__init__()
            self.action_space = gym.spaces.Box(-9.0, 9.0, (), np.float64)

    env = envs.Disturbed(Scalar(), envs.Recorded([1.0, 2.0]), "action")
    env.reset(seed=0)
    assert float(env.step(np.array(0.0))[4]["disturbance"]["action"]) == 1.0


@pytest.mark.parametrize(
    "disturbance",
    [
        envs.Uniform(1.0),
        envs.Gaussian(1.0),
        envs.OrnsteinUhlenbeck(1.0, tau=1.0),
        envs.Sinusoid(1.0, phase="random"),
        envs.SquareWave(1.0, phase="random"),
        envs.RandomWalk(1.0, bound=100.0),
    ],
    ids=lambda each: type(each).__name__,
)
def test_seeds_episodes_and_streams_are_independent(disturbance: Any) -> None:
    """Also those of two disturbances in one Disturbed, and of a Disturbed inside another."""
    both = [disturbance, disturbance]
    env = envs.Disturbed(Blank(WIDE), both, ["action", "observation"])
    env = envs.Disturbed(env, disturbance, "action")  # the sum of both is told
    env.reset(seed=3)
    steps_of(env, 2)
    info = env.step(np.zeros(WIDE))[4]["disturbance"]
    inner = draws(disturbance, 3, WIDE, seed=3)[-1]
    streams = [
        inner,
        info["action"] - inner,
        info["observation"],
        draws(disturbance, 3, WIDE, seed=4)[-1],
        draws(disturbance, 3, WIDE, seed=3, episode=1)[-1],
        draws(disturbance, 3, WIDE, seed=2, episode=1)[-1],
    ]
    table = np.corrcoef(np.array(streams))
    assert np.abs(table - np.eye(len(streams))).max() < 5 / np.sqrt(WIDE)


@pytest.mark.parametrize(
    "disturbance",
    [envs.Uniform(), envs.OrnsteinUhlenbeck(), envs.RandomWalk(), envs.Sinusoid(phase="random")],
    ids=lambda each: type(each).__name__,
)
def test_earlier_episodes_do_not_move_later_ones(disturbance: Any) -> None:
    tails = []
    for length in (0, 1, 63, 64, 65, 150):
        env = envs.Disturbed(Blank(), disturbance, "action")
        env.reset(seed=5)
        steps_of(env, length)
        env.reset()
        tails.append(steps_of(env, 70).tobytes())
    assert len(set(tails)) == 1


# Schedules: a constant 1 shows the factor.


def factors(when: Any, steps: int, episode: int = 0) -> np.ndarray:
    return draws(envs.Bias(1.0), steps, 1, when=when, episode=episode)[:, 0]


@pytest.mark.parametrize(
    ("start", "stop"), [(0, None), (0, 1), (3, 9), (60, 70), (64, 128), (100, None)]
)
def test_an_interval_is_on_from_start_to_before_stop(start: int, stop: int | None) -> None:
    on = np.zeros(140)
    on[start:stop] = 1.0
    np.testing.assert_array_equal(factors(envs.Interval(start, stop), 140), on)


@pytest.mark.parametrize("p", [0.0, 0.1, 0.7, 1.0])
def test_probability_is_that_share_of_steps_independently(p: float) -> None:
    n = 10_000
    on = factors(envs.Probability(p), n)
    assert set(on) <= {0.0, 1.0}
    assert abs(on.mean() - p) <= 5 * np.sqrt(p * (1 - p) / n)
    if 0 < p < 1:
        assert abs(correlation(on[1:], on[:-1])) < 5 / np.sqrt(n)


def test_probability_does_not_change_what_is_drawn_and_switches_all_coordinates() -> None:
    w = draws(envs.Gaussian(1.0), 500)
    gated = draws(envs.Gaussian(1.0), 500, when=envs.Probability(0.5))
    on = gated.any(axis=1)
    assert 150 < on.sum() < 350
    np.testing.assert_array_equal(gated[on], w[on])


def test_from_episode_waits_for_its_episode() -> None:
    assert [factors(envs.FromEpisode(2), 1, episode=e)[0] for e in range(4)] == [0, 0, 1, 1]


def test_growing_over_steps_is_proportional_and_then_full() -> None:
    w = factors(envs.Growing(steps=100), 150)
    np.testing.assert_allclose(w[:100], np.arange(1, 101) / 100)
    assert (w[99:] == 1.0).all()


def test_growing_over_episodes_is_proportional_and_then_full() -> None:
    w = [factors(envs.Growing(episodes=4), 1, episode=e)[0] for e in range(6)]
    np.testing.assert_allclose(w, [0.25, 0.5, 0.75, 1.0, 1.0, 1.0])


def test_a_function_gets_step_and_episode() -> None:
    w = factors(lambda step, episode: 100 * episode + step, 70, episode=2)
    np.testing.assert_array_equal(w, 200 + np.arange(70.0))


def test_several_schedules_multiply() -> None:
    when = [envs.Interval(10, 20), [envs.Growing(steps=40), lambda step, episode: step % 2]]
    steps = np.arange(70)
    expected = ((steps >= 10) & (steps < 20)) * np.minimum(1, (steps + 1) / 40) * (steps % 2)
    np.testing.assert_allclose(factors(when, 70), expected)


def test_reset_with_a_seed_begins_episode_zero_again() -> None:
    env = envs.Disturbed(Blank(), envs.Gaussian(), "action", when=envs.FromEpisode(1))
    shares = []
    for seed in (1, None, None, 1, None):
        env.reset(seed=seed)
        shares.append(steps_of(env, 3))
    assert [share.any() for share in shares] == [False, True, True, False, True]
    np.testing.assert_array_equal(shares[1], shares[4])
    assert not np.array_equal(shares[1], shares[2])
