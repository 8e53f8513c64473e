"""M by replays: what is learned, what is left alone, and how it goes on from files."""

import copy
import pickle

import gymnasium as gym
import numpy as np
import pytest

import windward as ww
from windward.adapt import counterfactual, saving
from windward.adapt.choosing import choose
from windward.adapt.flaw import Flaw

from .worlds import assert_same, drive

BASE = ww.policies.load("Pendulum-v1")
SINE = ww.envs.Sinusoid(0.35, 63)
QUICK = ww.adapt.Search(
    every=10, horizon=40, starts=6, judges=6, at_most=20, margin=0.0, spread=0.0
)


def world(disturbance=SINE, length=200, name="Pendulum-v1"):
    env = gym.make(name, max_episode_steps=length)
    return env if disturbance is None else ww.envs.Disturbed(env, disturbance, channel="qvel")


def made(disturbance=SINE, length=200, name="Pendulum-v1", **settings):
    options = {"signal": "pd3", "model": BASE, "learner": "replay", "search": QUICK}
    return ww.RobustWrapper(world(disturbance, length, name), **{**options, **settings})


def policy(x):
    return BASE.predict(x)[0]


def returns(env, episodes, base=BASE, enough=None):
    """Of episodes after one seed, and their lengths; up to one of `enough` steps."""
    sums, lengths = [], []  # of floats that differ if one observation does
    while len(sums) < episodes and enough not in lengths:
        x, _ = env.reset(seed=None if sums else 0)
        rewards, over = [], False
        while not over:
            x, reward, terminated, truncated, _ = env.step(base.predict(x)[0])
            rewards.append(reward)
            over = terminated or truncated
        sums.append(sum(rewards))
        lengths.append(len(rewards))
    return np.array(sums), lengths


def ran(env, steps, seed=0):
    x, _ = env.reset(seed=seed)
    return drive(env, policy, steps, x)[0]


def numbers(env):
    """All that it remembers."""
    teacher = env._module.teacher
    return [{**teacher.arrays(), "acting": env.M.copy(), "rest": repr(teacher.memory())}]


@pytest.mark.parametrize("name", ["Pendulum-v1", "InvertedPendulum-v5"])
def test_without_a_disturbance_it_is_not_there(name):
    base = ww.policies.load(name)
    env = made(None, 120, name, model=base)
    alone, adapted = returns(world(None, 120, name), 3, base), returns(env, 3, base)
    np.testing.assert_array_equal(alone[0], adapted[0])
    assert alone[1] == adapted[1]
    assert not env.M.any()


@pytest.mark.slow
def test_noise_is_left_alone():
    noise = ww.envs.Uniform(0.3)
    alone, adapted = (returns(env, 10)[0] for env in (world(noise), made(noise, search=None)))
    assert abs(adapted.mean() / alone.mean() - 1) < 0.05


@pytest.mark.slow
def test_a_sine_is_learned():
    env = made(search=None)
    alone, adapted = returns(world(), 10)[0], returns(env, 10)[0]
    assert adapted[3:].mean() > 0.7 * alone[3:].mean()  # both are negative
    assert "began to correct" in env.decisions[0]


@pytest.mark.slow
def test_a_pendulum_that_fell_stands():
    base = ww.policies.load("InvertedPendulum-v5")
    push = ww.envs.Sinusoid(np.array([0, 0.1]), 90)
    settings = {"disturbance": push, "length": 1000, "name": "InvertedPendulum-v5"}
    assert max(returns(world(**settings), 8, base)[1]) < 100
    env = made(**settings, model=base, search=None)
    assert max(returns(env, 8, base, enough=1000)[1]) == 1000


def test_a_harmful_M_is_given_up():
    """The wind has stopped: sizes are of what was, and M alone does the harm."""
    gust = ww.envs.Disturbed(gym.make("Pendulum-v1"), SINE, "qvel", ww.envs.Interval(0, 60))
    env = ww.RobustWrapper(gust, model=BASE, search=ww.adapt.Search(every=60, horizon=60))
    ran(env, 59)
    teacher = env._module.teacher
    assert not env.decisions
    teacher._cancelling = list  # no candidate that would be better than both
    teacher.M = np.full(teacher.M.shape, 2.0)
    env._module.engine.M = teacher.M_for_w_hat
    drive(env, policy, 141, gust.unwrapped._get_obs())
    assert np.abs(teacher.M).mean() < 1.5
    np.testing.assert_allclose(env.M != 0, teacher.M * teacher.record.per_size != 0)
    assert [each for each in env.decisions if "stepped back" in each or "halved" in each]


def test_same_seed_same_numbers():
    one, two, other = (made(seed=seed) for seed in (1, 1, 2))
    assert_same(ran(one, 45), ran(two, 45))
    assert_same(numbers(one), numbers(two))
    ran(other, 45)
    assert one.M.any()
    assert (one.M != other.M).any()


@pytest.mark.parametrize("steps", [0, 45, 60], ids=["new", "middle", "between"])
def test_a_file_goes_on(steps, tmp_path):
    env = made(length=30)
    told = ran(env, steps)
    env.save(tmp_path / "state")
    other = made(length=30, seed=9)
    x, _ = other.reset(seed=0)
    for t, each in enumerate(told):  # the environment alone, to the same state
        x, *_ = other.env.step(each["action"])
        if t in (29, 59):
            x, _ = other.reset()
    other.load(tmp_path / "state")
    assert_same(numbers(env), numbers(other))
    assert_same(drive(env, policy, 50, x)[0], drive(other, policy, 50, x)[0])
    assert_same(numbers(env), numbers(other))
    assert env.decisions


@pytest.mark.parametrize(
    "copy_of", [lambda env: pickle.loads(pickle.dumps(env)), copy.deepcopy], ids=["pickle", "copy"]
)
@pytest.mark.parametrize("steps", [0, 45], ids=["new", "middle"])
def test_copies_go_on(steps, copy_of):
    env = made(length=30)
    ran(env, steps)
    other = copy_of(env)
    assert_same(numbers(env), numbers(other))
    told = ran(other, 50, seed=5)
    assert_same(ran(env, 50, seed=5), told)
    assert_same(numbers(env), numbers(other))


ARRAYS = ("x", "window", "w_hat", "squares", "now", "M", "basis", "search_mean", "search_C")
DAMAGE = [
    *((name, "nan", lambda a: np.full_like(a, np.nan)) for name in ARRAYS),
    *((name, "narrow", lambda a: a[..., :-1]) for name in (*ARRAYS, "counts")),
    *((name, "short", lambda a: a[:-1]) for name in ("x", "window", "w_hat", "lengths")),
    *((name, "text", lambda a: a.astype("U9")) for name in ("x", "M", "lengths")),
    *((name, "negative", lambda a: -a - 1) for name in ("counts", "squares")),
    ("lengths", "negative", lambda a: np.array([a.sum() + 1, -1])),
]


def pushed(steps):
    """In iid noise."""
    env = made(ww.envs.Uniform(0.3), 30)
    ran(env, steps)
    return env


@pytest.fixture(scope="module")
def saved():
    return saving.snapshot(pushed(45)._module)


def refused(arrays, header):
    env = pushed(12)
    before, drawn = numbers(env), env._module.source.memory()
    with pytest.raises(ValueError, match="odd"):
        saving.restore(env._module, arrays, header, "odd")
    assert_same(numbers(env), before)
    return env._module.source.memory() == drawn


@pytest.mark.parametrize(("name", "kind", "change"), DAMAGE)
def test_damaged_records(name, kind, change, saved):
    arrays, header = saved
    key = f"teacher/{name}"
    refused({**arrays, key: change(arrays[key])}, header)


def test_missing_records(saved):
    arrays, header = saved
    for name in [each for each in arrays if each.startswith("teacher/")]:
        refused({key: a for key, a in arrays.items() if key != name}, header)
    for wrong in (None, 3, {}, {**header["teacher"], "generator": {}, "counts": {}}):
        assert refused(arrays, {**header, "teacher": wrong})  # nor has the simulator changed


def test_reset_adaptation_is_as_new():
    env = made(length=30)
    ran(env, 45)
    assert env.decisions
    env.reset(seed=0)
    env.reset_adaptation()
    fresh = made(length=30)
    assert_same(numbers(env), numbers(fresh))
    assert_same(ran(env, 45), ran(fresh, 45))


def test_frozen_neither_records_nor_learns():
    env = made()
    ran(env, 25)
    env.freeze()
    before = numbers(env)
    drive(env, policy, 30, env.unwrapped._get_obs())
    assert_same(numbers(env), before)
    env.unfreeze()
    drive(env, policy, 6, env.unwrapped._get_obs())
    episodes = env._module.teacher.record.pieces
    assert [len(episode) for episode in episodes] == [25, 6]  # what is between is not known
    assert not episodes[1][0].window.any()


def spoil(function, at, with_):
    """A function whose call number `at` gives something else."""
    calls = [0]

    def spoilt(*given):
        calls[0] += 1
        return with_(function(*given)) if calls[0] == at else function(*given)

    return spoilt


BAD = {
    "observation": lambda out: (out[0] * np.nan, *out[1:]),
    "reward": lambda out: (out[0], np.nan, *out[2:]),
}


@pytest.mark.parametrize("what", BAD)
def test_faults_cut_the_recording(what):
    env = made()
    env.env.step = spoil(env.env.step, 15, BAD[what])
    env.reset(seed=0)
    with pytest.warns(ww.Fault):
        drive(env, lambda _: policy(env.unwrapped._get_obs()), 60, None)
    episodes = env._module.teacher.record.pieces
    assert [len(episode) for episode in episodes] == [14, 44]
    assert not episodes[1][0].window.any()
    assert env.faults == {what: 1}
    assert env.decisions


@pytest.mark.parametrize("call", [40, 41, 42])
def test_a_simulator_that_fails_once(call):
    """A fault like others, whoever asked: the base acts alone, and adaptation goes on."""
    env = made()
    dynamics = env._module.teacher.simulator._dynamics
    dynamics.state = spoil(dynamics.state, call, lambda _: 1 / 0)
    with pytest.warns(ww.Fault):
        ran(env, 60)
    assert env.faults == {"signal": 1}


def test_several_environments_are_refused():
    several = gym.vector.SyncVectorEnv([lambda: gym.make("Pendulum-v1")] * 2)
    for kind, match in ((ww.RobustVectorWrapper, "replay"), (ww.RobustWrapper, "Vector")):
        with pytest.raises(ValueError, match=match):
            kind(several, "pd3", model=BASE, learner="replay")


def test_a_vector_of_one_and_an_own_loop_are_as_the_wrapper():
    options = {"model": BASE, "learner": "replay", "search": QUICK}
    wrapped = ww.RobustWrapper(world(), "pd3", **options)
    vector = ww.RobustVectorWrapper(gym.vector.SyncVectorEnv([world]), "pd3", **options)
    env = world()
    mine = ww.robustify(BASE, env, "pd3", live=True, learner="replay", search=QUICK)
    x, _ = wrapped.reset(seed=0)
    xs, _ = vector.reset(seed=0)
    y, _ = env.reset(seed=0)
    for _ in range(60):
        x, _, _, _, info = wrapped.step(policy(x))
        xs, _, _, _, infos = vector.step(policy(xs))
        action, _ = mine.predict(y, deterministic=True)
        y, *came = env.step(action)
        mine.observe(came[0], y, *came[1:3])
        executed = info["windward"]["action"]
        np.testing.assert_array_equal(infos["windward"]["action"][0], executed)
        np.testing.assert_array_equal(action, executed)
    assert wrapped.M.any()
    assert not any(each.faults for each in (wrapped, vector, mine))


REFUSED = [
    ({"learner": "advantage", "search": None, "model": None}, "advantage.*model="),
    ({"learner": "mf-gpc"}, "search="),
    ({"learner": "auto", "eta": 0.1}, "search="),
    ({"search": {"every": 10}}, "search"),
    ({"model": None}, "replay.*model="),
    ({"signal": "pd2"}, "replay.*pd3"),
]


@pytest.mark.parametrize(("settings", "match"), REFUSED)
def test_settings_that_do_not_go_together(settings, match):
    with pytest.raises(ValueError, match=match):
        made(**settings)


def test_auto():
    assert made(learner="auto").learner == "replay"
    for given in ({"model": None}, {"eta": 1e-3}, {"sigma": 0.1}, {"M0": np.zeros((5, 1, 2))}):
        env = made(learner="auto", **{"search": None, **given})
        assert (env.learner, env.decisions) == ("mf-gpc", [])


def test_what_replays_found_is_what_acts():
    """However large: a ball for M, as the paper's update has one, would cut it."""
    env = made()
    ran(env, 30)
    teacher = env._module.teacher
    teacher.M = np.full(teacher.M.shape, 50.0)
    large = env._module.engine.M = teacher.M_for_w_hat
    drive(env, policy, 1, env.unwrapped._get_obs())
    np.testing.assert_allclose(env.M, large, rtol=1e-6)


@pytest.mark.slow
def test_the_search_goes_on_and_begins_anew_when_the_record_has_doubled():
    env = made(length=30)
    ran(env, 30)
    teacher = env._module.teacher
    begun, generation = teacher.drawing.begun, int(teacher.drawing.state.generation)
    assert begun <= 30
    assert generation > 0
    teacher.update()
    assert (teacher.drawing.begun, int(teacher.drawing.state.generation)) == (begun, generation + 1)
    drive(env, policy, 2 * begun, env.unwrapped._get_obs())
    teacher.update()
    assert teacher.drawing.begun >= 2 * begun


def test_where_all_stand_nothing_is_looked_for(monkeypatch):
    env = made(length=30)
    ran(env, 30)
    teacher, asked = env._module.teacher, []
    monkeypatch.setattr(teacher, "_generation", lambda *given: asked.append(given))
    monkeypatch.setattr(teacher, "_judge", lambda candidates: False)
    teacher.M = np.ones_like(teacher.M)
    teacher.update()
    assert len(asked) == 1  # on Pendulum costs differ

    def alike(stood):
        return lambda M, starts: (np.full((len(starts), len(M)), -9.0), np.full(len(starts), stood))

    monkeypatch.setattr(teacher, "_replay", alike(True))
    assert not teacher.update()
    assert len(asked) == 1
    monkeypatch.setattr(teacher, "_replay", alike(False))  # all fall, and at the same step
    teacher.update()
    assert len(asked) == 2
    monkeypatch.setattr(teacher, "_replay", alike(True))
    teacher.M = 0 * teacher.M  # the base policy: is there a better one?
    teacher.update()
    assert len(asked) == 3


@pytest.mark.parametrize("settings", [{"h": 1}, {"search": ww.adapt.Search(every=1, starts=6)}])
def test_short_windows_and_short_records(settings):
    """One lag has no windows that begin with zeros; one step has no window at all."""
    env = made(length=30, **settings)
    ran(env, 40 if "h" in settings else 4)
    assert not env.faults
    assert env._module.teacher.drawing.state.generation > 0


def test_where_nothing_is_found_smaller_steps_are_tried(monkeypatch):
    """One after the other, quickly at first; what is found at a size is kept."""
    search = ww.adapt.Search(every=10, at_most=40, horizon=20, starts=4, judges=4, per_episode=0)
    env = made(search=search)
    teacher = env._module.teacher
    monkeypatch.setattr(type(teacher), "_judge", lambda self, candidates: False)
    sizes, waits = [], []

    def updated(count, plain=teacher.pace.updated, **what):
        sizes.append(float(teacher.drawing.state.step))
        plain(count, **what)
        waits.append(teacher.pace.wait)

    monkeypatch.setattr(teacher.pace, "updated", updated)
    ran(env, 200)
    assert waits[:7] == [20, 10, 20, 10, 20, 40, 40]
    at = np.array(sizes) / search.step
    assert 0.5 < at[0] < 2
    assert 0.5 / 4 < at[2] < 2 / 4
    assert 0.5 / 16 < at[4] < 2 / 16


def test_after_a_fall_steps_are_large_again():
    """Small ones are for what nothing ends: M that avoids a fall is far from 0."""
    env = made(length=30)
    ran(env, 30)
    teacher = env._module.teacher
    teacher.pace.scale = 2
    teacher.after(np.zeros(2), 0.0, False, False, False)
    assert teacher.pace.scale == 2
    teacher.update()
    generation = int(teacher.drawing.state.generation)
    teacher.after(np.zeros(2), 0.0, False, True, True)
    assert teacher.pace.scale == 0
    assert teacher.drawing.begun_scale == 0  # and the search began anew
    assert teacher.drawing.state.generation <= generation + 5


def test_a_coordinate_that_begins_to_move_is_met_at_once():
    env = made(length=30)
    ran(env, 30)
    teacher = env._module.teacher
    assert not teacher.drawing.basis.reshape(-1, 5, 2)[..., 0].any()
    last = teacher.record.pieces[-1][-1]
    teacher.record.add(last.x, np.array([0.5, 0.1]), last.phi)
    teacher.record.add(last.x, np.array([0.5, 0.1]), last.phi)
    begun = teacher.drawing.begun
    teacher.drawing.renew(teacher.record, teacher.pace, teacher.M)
    assert teacher.drawing.begun > begun
    assert teacher.drawing.basis.reshape(-1, 5, 2)[..., 0].any()


def test_a_search_that_came_to_rest_begins_anew_around_M():
    env = made(length=30)
    ran(env, 40)
    teacher = env._module.teacher
    teacher.M = teacher.drawing.maps(np.arange(1.0, 1.0 + len(teacher.drawing.state.mean)))[0]
    teacher.drawing.state = teacher.drawing.state._replace(step=np.array(1e-3))
    teacher.drawing.renew(teacher.record, teacher.pace, teacher.M)
    assert teacher.drawing.state.generation == 0
    assert teacher.drawing.state.step == QUICK.step
    np.testing.assert_allclose(
        teacher.drawing.maps(teacher.drawing.state.mean)[0], teacher.M, atol=1e-9
    )


def test_replays_of_long_episodes_are_spread_and_judge_further(monkeypatch):
    """How long replays are, where they start and what they discount follows from the pace."""
    env = made(search=ww.adapt.Search(every=10**6, horizon=20, after_end=30, judges=8))
    ran(env, 30)
    teacher, drawn, discounts = env._module.teacher, [], []
    plain, replay = teacher.record.starts, counterfactual.replay

    def starts(count, horizon, rng, luck, spread):
        drawn.append((horizon, spread))
        return plain(count, horizon, rng, luck, spread)

    def replayed(simulator, policy, starts, candidates, gamma):
        discounts.append(gamma)
        return replay(simulator, policy, starts, candidates, gamma)

    monkeypatch.setattr(teacher.record, "starts", starts)
    monkeypatch.setattr(counterfactual, "replay", replayed)
    M, gamma = np.zeros((5, *teacher.M.shape)), teacher.search.gamma
    for lasted, ends, horizon, spread in (
        ([60], [], 20, 0), ([61], [], 60, 61), ([61], [40], 50, 0)
    ):  # fmt: skip
        teacher.pace.lasted, teacher.pace.ends = lasted, ends
        teacher._costs(M, 8)
        assert drawn[-1] == (horizon, spread)
        assert discounts[-1] == pytest.approx(gamma ** min(1.0, 30 / horizon))
    teacher.pace.lasted, teacher.pace.ends = [61], []
    teacher._starts(4)
    assert drawn[-1] == (20, 61)  # the search itself goes on with short ones


def test_searches_in_vain_are_counted_and_a_mended_simulator_ends_them(monkeypatch):
    env = made(length=30)
    ran(env, 40)
    teacher = env._module.teacher
    monkeypatch.setattr(teacher, "_judge", lambda candidates: False)
    teacher.M[:], teacher.pace.vain = 0, 0
    for count in (1, 2):
        teacher.update()
        assert teacher.pace.vain == count
    Theta = np.ones_like(teacher.amended.Theta)
    found = Flaw(Theta, np.zeros((2, 5)), np.ones(2, dtype=bool))
    monkeypatch.setattr(counterfactual, "flaw", lambda *_: found)
    assert teacher._mend()
    assert teacher.pace.vain == 0


@pytest.mark.parametrize("how", ["freeze", "reset"])
def test_an_episode_that_was_not_seen_whole_has_no_length(how):
    def ran_on(env, steps):
        for _ in range(steps):
            env.step(env.action_space.sample())

    env = made(length=30)
    ran(env, 40)
    env.reset(seed=1)
    pace = env._module.teacher.pace
    assert pace.lasted == [30, 10]  # who leaves an episode ends it
    ran_on(env, 10)
    if how == "freeze":
        env.freeze()
        ran_on(env, 5)
        env.unfreeze()
    else:
        env.reset_adaptation()
        pace = env._module.teacher.pace
    before = list(pace.lasted)
    ran_on(env, 3)
    env.reset(seed=2)
    assert pace.lasted == before
    ran_on(env, 4)
    env.reset(seed=3)
    assert pace.lasted == [*before, 4]


STANDS = -100.0
"""the cost of a replay that does not fall"""


def judged(*columns, margin=0.01, spread=1.5):
    """What is chosen by costs of M, of the base policy, of M/2 and of more: 16 judges."""
    costs = np.stack([np.broadcast_to(each, 16) for each in columns], axis=1).astype(float)
    return choose(costs, margin, spread)


def falls(count, at=-20.0, other=STANDS):
    return np.where(np.arange(16) < count, at, other)


def test_what_saves_one_and_costs_none_is_taken():
    """One of sixteen replays falls; a spread of 1.5 standard errors alone would not tell."""
    assert judged(falls(1), falls(1), falls(1), STANDS) == 3
    assert judged(falls(1), falls(1), falls(1), falls(1, STANDS, -99.0)) == 0  # worse elsewhere
    assert judged(falls(1), falls(1), falls(1), falls(1, -20.5)) == 0  # by less than a margin


def test_the_best_of_those_that_beat_the_base_policy_is_taken():
    assert judged(falls(4), falls(12), falls(8), falls(3), falls(2)) == 4
    assert judged(falls(2), falls(12), falls(8), falls(3), falls(2)) == 0
    # M is no better than the base policy for sure, and the last is.
    assert judged(falls(4), falls(5)[::-1], falls(16), falls(1)) == 3
    # M/2 is surely better than the base policy, and M more so on the mean: it stays.
    M, half = np.where(np.arange(16) % 2, -125.0, -60.0), -91.25
    assert judged(M, -90.0, half) == 0


def test_M_that_is_worse_than_the_base_policy_goes():
    assert judged(falls(8), falls(2), falls(8), falls(9)) == 1
    assert judged(falls(8), falls(8), falls(8), falls(9)) == 0
    assert judged(falls(8), falls(6), falls(2), falls(9)) == 2


def test_in_doubt_the_base_policy_acts():
    """M must be sure to begin; it goes as soon as it only seems worse."""
    swings = np.where(np.arange(16) % 2, 1.0, -1.0)  # a standard error of a quarter
    assert judged(STANDS + swings + 0.2, STANDS, STANDS + swings + 0.1, STANDS) == 1
    assert judged(STANDS + swings + 0.1, STANDS, STANDS + swings + 0.05, STANDS) == 0
    assert judged(STANDS, STANDS, STANDS, STANDS + swings - 0.3) == 0


@pytest.mark.parametrize("lucky", [True, False])
def test_before_M_begins_more_judges_are_asked(monkeypatch, lucky):
    """What twenty judges liked by chance sixty do not."""
    env = made(length=30)
    ran(env, 40)
    teacher = env._module.teacher
    teacher.M[:] = 0
    teacher.decisions.clear()
    asked = []

    def costs(candidates, judges):
        asked.append(judges)
        gain = 0.0 if lucky and len(asked) > 1 else 50.0
        found = np.full((judges, len(candidates)), 100.0)
        found[:, 3] -= gain
        if lucky and len(asked) > 1:  # and as often worse by as much
            found[:, 3] += np.where(np.arange(judges) % 2, 200.0, -200.0)
        return found

    monkeypatch.setattr(teacher, "_costs", costs)
    candidates = np.stack([teacher.M] * 3 + [teacher.M + 1.0])
    assert teacher._judge(candidates) != lucky
    assert asked == [teacher.search.judges, 2 * teacher.search.judges]
    assert bool(teacher.M.any()) != lucky
    said = "began to correct" in " ".join(teacher.decisions[-1:])
    assert said != lucky


@pytest.mark.parametrize(
    "options", [{"eta": 0.1}, {"lam": 0.5}, {"delay": 1, "fit_every": 2}, {"Sigma": np.eye(1)}]
)
def test_options_that_replays_do_not_look_at_are_refused(options):
    with pytest.raises(ValueError, match=f"{', '.join(options)} mean nothing to learner"):
        made(**options)
