"""Files: a loaded wrapper goes on exactly, and a file that does not fit changes nothing."""

import copy
import pickle

import gymnasium as gym
import numpy as np
import optax
import pytest

import windward as ww
from windward import files

from .worlds import Plant, assert_same, drive, true_w, wind

BASE = ww.policies.load("Pendulum-v1")
ADAM = optax.scale_by_adam()
SETTINGS = {
    "learner": "mf-gpc", "guard": False, "h": 3, "every_steps": 2, "eta": 1e-3, "sigma": 0.1,
}  # fmt: skip
VARIANTS = {
    "plain": {},
    "adam": {"scale_by": ADAM},
    "episodes": {"every_episodes": 2, "every_steps": 1},
    "noisy": {"simulator": {"noisy": True, "copies": 4}},
    "delay": {"delay": 2, "weight_decay": 0.01},
    "mlp": {"parametrisation": ww.mlp(4)},
}


def made(seed=3, length=17, **settings):
    inner = gym.make("Pendulum-v1", max_episode_steps=length)
    inner = ww.envs.Disturbed(inner, ww.envs.Uniform(0.1), channel="qvel")
    return ww.RobustWrapper(inner, "pd3", seed=seed, **{**SETTINGS, **settings})


def policy(x):
    return BASE.predict(x)[0]


@pytest.mark.parametrize("variant", VARIANTS)
def test_between_episodes(variant, tmp_path):
    """Two episodes, saved, the rest in another wrapper: as if never interrupted."""
    env = made(**VARIANTS[variant])
    x, _ = env.reset(seed=0)
    drive(env, policy, 34, x)  # ends with a reset, so the next one is the third
    env.save(tmp_path / "state")
    x, _ = env.reset(seed=5)
    told, _ = drive(env, policy, 40, x)

    other = made(seed=99, **VARIANTS[variant])
    other.load(tmp_path / "state")
    x, _ = other.reset(seed=5)
    assert_same(drive(other, policy, 40, x)[0], told)
    for a, b in zip(_leaves(env), _leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)


def _leaves(env):
    import jax

    return jax.tree.leaves(env.M)


@pytest.mark.parametrize("frozen", [False, True])
def test_in_the_middle_of_an_episode(frozen, tmp_path):
    plant = Plant(wind(200), length=9)
    env = ww.RobustWrapper(plant, true_w, seed=2, **SETTINGS)
    x, _ = env.reset()
    _, x = drive(env, plant.base, 23, x)
    if frozen:
        env.freeze()
    env.save(tmp_path / "state")
    inner = copy.deepcopy(plant)
    told, _ = drive(env, plant.base, 40, x)

    other = ww.RobustWrapper(inner, true_w, **SETTINGS)
    other.load(tmp_path / "state")
    assert other.frozen == frozen
    assert_same(drive(other, inner.base, 40, x)[0], told)
    np.testing.assert_array_equal(env.M, other.M)


def test_right_after_reset_and_before(tmp_path):
    plant = Plant(wind(200), length=9)
    env = ww.RobustWrapper(plant, true_w, seed=2, **SETTINGS)
    env.save(tmp_path / "new")
    x, _ = env.reset()
    env.save(tmp_path / "begun")
    told, _ = drive(env, plant.base, 30, x)
    for name in ("new", "begun"):
        fresh = Plant(wind(200), length=9)
        other = ww.RobustWrapper(fresh, true_w, **SETTINGS)
        other.load(tmp_path / name)
        x, _ = other.reset()
        assert_same(drive(other, fresh.base, 30, x)[0], told)


def test_counts_are_kept(tmp_path):
    plant = Plant(wind(50))
    env = ww.RobustWrapper(plant, true_w, **{**SETTINGS, "sigma": 2.0})
    x, _ = env.reset()
    drive(env, plant.base, 10, x)
    with pytest.warns(ww.Fault):
        env.step(np.array([np.nan]))
    env.save(tmp_path / "state")
    other = ww.RobustWrapper(Plant(wind(50)), true_w, **{**SETTINGS, "sigma": 2.0})
    other.load(tmp_path / "state")
    assert other.faults == env.faults != {}
    assert other.clipped == env.clipped > 0


@pytest.fixture
def saved(tmp_path):
    """A wrapper that learned, and its file."""
    env = made()
    x, _ = env.reset(seed=0)
    drive(env, policy, 25, x)
    env.save(tmp_path / "state.npz")
    return env, tmp_path / "state.npz"


def refuse(path, match=None, **settings):
    """Loading is refused, and the wrapper goes on as if it had not been tried."""
    env, other = made(**settings), made(**settings)
    x, _ = env.reset(seed=1)
    y, _ = other.reset(seed=1)
    drive(env, policy, 8, x)
    drive(other, policy, 8, y)
    with pytest.raises(ValueError, match=match) as told:
        env.load(path)
    x, y = env.unwrapped._get_obs(), other.unwrapped._get_obs()
    assert_same(drive(env, policy, 20, x)[0], drive(other, policy, 20, y)[0])
    return str(told.value)


def test_truncated(saved, tmp_path):
    content = saved[1].read_bytes()
    for length in (0, 1, 20, len(content) // 2, len(content) - 1):
        (tmp_path / "cut").write_bytes(content[:length])
        refuse(tmp_path / "cut", "damaged")


def test_flipped_bytes(saved, tmp_path):
    """Each is refused, or was in a place that means nothing: never is another state taken over."""
    env, path = saved
    content, M = path.read_bytes(), env.M.copy()
    rng = np.random.default_rng(0)
    refused = 0
    for at in rng.choice(len(content), size=80, replace=False):
        damaged = bytearray(content)
        damaged[at] ^= 1 << rng.integers(8)
        (tmp_path / "damaged").write_bytes(damaged)
        env.reset_adaptation()
        try:
            env.load(tmp_path / "damaged")
        except ValueError:
            refused += 1
            assert not env.M.any()
        else:
            np.testing.assert_array_equal(env.M, M)
    assert refused > 20


def test_files_of_others(tmp_path):
    (tmp_path / "text").write_text("not at all")
    refuse(tmp_path / "text", "damaged or not windward's")
    np.savez(tmp_path / "foreign.npz", a=np.zeros(3))
    refuse(tmp_path / "foreign.npz", "not windward's")
    values = ww.fit_values(
        gym.make("Pendulum-v1"), lambda x: [0.0], steps=50, updates=2, widths=(4,)
    )
    ww.save_values(values, tmp_path / "values.npz")
    refuse(tmp_path / "values.npz", "windward.adaptation")
    with (tmp_path / "pickle").open("wb") as file:
        pickle.dump({"kind": "windward.adaptation"}, file)
    refuse(tmp_path / "pickle", "damaged or not windward's")
    refuse(tmp_path / "none", "no file")


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"h": 4}, "h = 3"),
        ({"scale_by": ADAM}, "settings"),
        ({"every_episodes": 2, "every_steps": 1}, "settings"),
    ],
    ids=["h", "adam", "episodes"],
)
def test_of_other_settings(saved, settings, match):
    refuse(saved[1], match, **settings)


def test_of_another_signal(saved):
    env = ww.RobustWrapper(gym.make("Pendulum-v1"), lambda x, u, r, y: [0.0, 1.0], **SETTINGS)
    with pytest.raises(ValueError, match=r"signal = 'pd3'.*'own'"):
        env.load(saved[1])
    assert not env.M.any()


HEADER = {
    "seed": [-1, 2**40, None, "a"],
    "t": [-5, None, "a"],
    "source": [None, 3, [None], [{}], []],
    "state": [None, 3, []],
    "faults": [None, 3, {"signal": "many"}],
    "clipped": [None, "a"],
    "frozen": [None, 3],
    "notes": [None, 3],
    "rows": [2, None],
}
OF_LEARNER = ("seed", "t", "source")


@pytest.mark.parametrize("field", HEADER)
def test_headers_that_are_whole_and_wrong(field, saved, tmp_path):
    """A file that was written on purpose, or by another version."""
    arrays, header = files.read(saved[1], "windward.adaptation")

    def write(part):
        whole = {**header, "state": part} if field in OF_LEARNER else part
        files.write(tmp_path / "odd", dict(arrays), whole)

    right = header["state"] if field in OF_LEARNER else header
    for value in HEADER[field]:
        write({**right, field: value})
        refuse(tmp_path / "odd")
    write({name: each for name, each in right.items() if name != field})
    refuse(tmp_path / "odd", field)


def test_arrays_that_are_whole_and_wrong(saved, tmp_path):
    arrays, header = files.read(saved[1], "windward.adaptation")
    state = [name for name in arrays if name.startswith("learner/state/")]
    wrong = {
        "nan": {**arrays, state[0]: np.full_like(arrays[state[0]], np.nan)},
        "type": {**arrays, state[0]: arrays[state[0]].astype(np.float64)},
        "shape": {**arrays, state[0]: arrays[state[0]][..., :-1]},
        "missing": {name: each for name, each in arrays.items() if name != state[-1]},
        "fallback": {**arrays, "fallback": np.zeros(3, bool)},
        "fallback_type": {**arrays, "fallback": np.full(1, np.nan)},
        "mid_episode": {**arrays, "learner/mid_episode": np.zeros((1, 2), bool)},
        "x": {**arrays, "x": np.zeros((1, 7), np.float32)},
    }
    for each in wrong.values():
        files.write(tmp_path / "odd", each, header)
        refuse(tmp_path / "odd")


def test_written_whole_or_not_at_all(saved, tmp_path):
    env, path = saved
    before = path.read_bytes()
    (tmp_path / "folder").mkdir()
    with pytest.raises(ValueError, match="could not write"):
        env.save(tmp_path / "folder")
    assert path.read_bytes() == before
    env.save(path)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["folder", "state.npz"]
