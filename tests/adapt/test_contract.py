"""What every learner does in every form: a new one enters this suite by being registered."""

import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import windward as ww
import windward.agents  # brings the learner "residual"
from windward.adapt import config
from windward.adapt.judges import JudgeSettings
from windward.adapt.program import program
from windward.adapt.supervisor import SupervisorSettings

ENV = "Pendulum-v1"
MODEL = ww.policies.load(ENV)
LENGTH = 25
QUICK = {
    "judge": JudgeSettings(rounds=((4, 0.8),)),
    "supervisor": SupervisorSettings(ready=10**9),
}
GUARDED = {"guard": False, "h": 3}
OPTIONS: dict[str, dict[str, Any]] = {
    "auto": QUICK, "matching": QUICK, "search": QUICK,
    **dict.fromkeys(config.GRADIENTS, GUARDED),
    "observer": {}, "l1": {}, "residual": {"widths": (8,), "burn_in": 10, "batch_size": 8},
}  # fmt: skip
"""of learners, so that they act soon"""
DRAWS = ("residual",)
"""learners that explore from the first step on, whatever they see"""
MARKED = [
    pytest.param(name, marks=pytest.mark.slow) if name in ("search", "auto") else name
    for name in OPTIONS
]


def base(x: np.ndarray) -> np.ndarray:
    return np.asarray(MODEL.predict(x)[0])


def world(wind: bool = True, length: int = LENGTH) -> gym.Env:
    env = gym.make(ENV, max_episode_steps=length)
    return ww.envs.Disturbed(env, "bias:value=0.2", "qvel") if wind else env


class Form:
    """A form as one row that is stepped: the same calls for all of them."""

    def __init__(self, name: str, learner: str, env: gym.Env, seed: int = 0) -> None:
        options = {"model": MODEL, "learner": learner, "seed": seed, **OPTIONS.get(learner, {})}
        self.name, self.env = name, env
        if name == "wrapper":
            self.layer: Any = ww.RobustWrapper(env, "pd3", **options)
        elif name == "vector":
            self.layer = ww.RobustVectorWrapper(
                gym.vector.SyncVectorEnv(
                    [lambda: env], autoreset_mode=gym.vector.AutoresetMode.DISABLED
                ),
                "pd3", **options,
            )  # fmt: skip
        else:
            del options["model"]
            self.layer = ww.robustify(MODEL, env, "pd3", live=True, **options)
        self.x: Any = None

    def reset(self, seed: int | None = None) -> None:
        """Begins an episode."""
        if self.name == "vector":
            mask = {"reset_mask": np.ones(1, dtype=bool)}
            x, _ = self.layer.reset(seed=seed, options=mask)
            self.x = x[0]
        elif self.name == "wrapper":
            self.x, _ = self.layer.reset(seed=seed)
        else:
            self.x, _ = self.env.reset(seed=seed)
            self._start = True

    def step(self) -> tuple[np.ndarray, dict[str, Any]]:
        """(the executed action, what was told); a new episode begins where one ended."""
        if self.name == "own loop":
            action, _ = self.layer.predict(
                self.x, deterministic=True, episode_start=np.array([self._start])
            )
            self._start = False
            self.x, reward, terminated, truncated, _ = self.env.step(action)
            told = self.layer.observe(reward, self.x, terminated, truncated).row(0)
        elif self.name == "wrapper":
            self.x, _, terminated, truncated, info = self.layer.step(base(self.x))
            told = info["windward"]
        else:
            x, _, terminated, truncated, info = self.layer.step(base(self.x)[None])
            self.x = x[0]
            told = {name: each[0] for name, each in info["windward"].items()}
        if np.any(terminated) or np.any(truncated):
            self.reset()
        return np.array(told["action"]), told

    def run(self, steps: int) -> np.ndarray:
        """Executed actions."""
        return np.array([self.step()[0] for _ in range(steps)])


FORMS = ("wrapper", "vector", "own loop")


@contextmanager
def faults() -> Iterator[None]:
    """Faults are expected here, other warnings are not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ww.Fault)
        yield


def begun(name: str, learner: str, wind: bool = True, seed: int = 0) -> Form:
    form = Form(name, learner, world(wind), seed)
    form.reset(seed=7)
    return form


def test_every_learner_is_in_this_suite() -> None:
    assert set(config.known()) == set(OPTIONS)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("learner", [each for each in OPTIONS if each not in DRAWS])
def test_where_nothing_changed_the_base_action_leaves(learner: str, form: str) -> None:
    """Bit for bit; learners that explore wait until there is something to be learned."""
    with pytest.MonkeyPatch.context() as patch:
        if learner in config.GRADIENTS:
            patch.setitem(OPTIONS, learner, {"h": 3})
        robust = begun(form, learner, wind=False)
    for _ in range(60):
        mine = base(robust.x)
        action, told = robust.step()
        np.testing.assert_array_equal(action, mine)
        assert not told["fault"]
        assert not told["clipped"]


@pytest.mark.parametrize("learner", MARKED)
def test_all_forms_act_alike(learner: str) -> None:
    """To the bit, and so does the same form again; something acts."""
    runs = {form: begun(form, learner).run(90) for form in FORMS}
    runs["again"] = begun("wrapper", learner).run(90)
    for other in runs.values():
        np.testing.assert_array_equal(other, runs["wrapper"])
    robust = begun("wrapper", learner)
    told = [robust.step()[1] for _ in range(90)]
    assert any((each["correction"] + each["noise"]).any() for each in told)
    assert not robust.layer.faults


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("learner", MARKED)
def test_a_saved_state_goes_on_to_the_bit(learner: str, form: str, tmp_path: Path) -> None:
    """In the middle of an episode; saving changes nothing, and any form may go on."""
    whole = begun("wrapper", learner).run(110)
    first = begun("wrapper", learner)
    np.testing.assert_array_equal(first.run(70), whole[:70])
    first.layer.save(tmp_path / "state.npz")
    then = Form(form, learner, first.env)
    then.layer.load(tmp_path / "state.npz")
    then.x, then._start = first.x, False
    if form == "vector":
        then.layer.env._env_obs = [first.x]
        then.layer.env._autoreset_envs = np.zeros(1, dtype=bool)
    np.testing.assert_array_equal(then.run(40), whole[70:])
    assert then.layer.decisions[: len(first.layer.decisions)] == first.layer.decisions
    np.testing.assert_array_equal(first.run(0), np.zeros(0))


def hostile(env: gym.Env, seed: int = 0) -> None:
    """From now on a step shows numbers that are none, now and then, and checks what is executed."""
    rng, step, space = np.random.default_rng(seed), env.step, env.action_space

    def odd(action: Any) -> Any:
        assert np.isfinite(action).all()
        assert (action >= space.low).all()  # type: ignore[attr-defined]
        assert (action <= space.high).all()  # type: ignore[attr-defined]
        x, reward, *rest = step(action)
        what = rng.choice(["no", "observation", "reward"], p=[0.7, 0.15, 0.15])
        if what == "observation":
            x = np.array(x)
            x[rng.integers(len(x))] = rng.choice([np.nan, np.inf, -np.inf])
        if what == "reward":
            reward = [np.nan, None, 10**400, 1j, np.inf][rng.integers(5)]
        return x, reward, *rest

    env.step = odd  # type: ignore[method-assign]


@pytest.mark.parametrize("learner", MARKED)
def test_hostile_input_never_reaches_the_actuator(learner: str) -> None:
    options = {"model": MODEL, "learner": learner, **OPTIONS[learner]}
    env = world()
    robust = ww.RobustWrapper(env, "pd3", **options)
    hostile(env)
    rng = np.random.default_rng(1)
    x, _ = robust.reset(seed=3)
    with faults(), np.errstate(all="ignore"):
        for t in range(150):
            mine = base(np.nan_to_num(x, posinf=1, neginf=-1))
            if rng.random() < 0.1:
                mine = mine * np.float32(rng.choice([np.nan, np.inf]))
            x, _, terminated, truncated, info = robust.step(mine)
            told = info["windward"]
            assert all(np.isfinite(told[name]).all() for name in ("w_hat", "correction", "noise"))
            if terminated or truncated or t % 61 == 60:
                x, _ = robust.reset()
    assert min(robust.faults[kind] for kind in ("observation", "reward", "action")) > 3


@pytest.mark.parametrize("learner", MARKED)
def test_frozen_it_acts_as_it_is_and_forgotten_as_new(learner: str) -> None:
    robust = begun("wrapper", learner)
    robust.run(70)
    said = list(robust.layer.decisions)
    robust.layer.freeze()
    robust.run(30)
    assert robust.layer.decisions == said
    robust.layer.unfreeze()
    robust.layer.reset_adaptation()
    robust.reset(seed=7)
    fresh = Form("wrapper", learner, world())
    fresh.env = fresh.layer.env
    assert robust.layer.decisions == fresh.layer.decisions


def test_equal_learners_share_what_is_compiled() -> None:
    begun("wrapper", "mf-gpc").run(3)
    before = program.cache_info().misses
    begun("wrapper", "mf-gpc", seed=3).run(3)
    assert program.cache_info().misses == before


# A learner of one's own, as docs/learners.md shows it.


@pytest.fixture
def damper() -> Iterator[str]:
    page = (Path(__file__).parents[2] / "docs" / "learners.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    exec(block, {})  # registers it
    OPTIONS["damper"] = {"share": 0.6}
    yield "damper"
    del config.LEARNERS["damper"], OPTIONS["damper"]


@pytest.mark.parametrize(
    "check",
    [
        lambda name, path: test_all_forms_act_alike(name),
        lambda name, path: test_a_saved_state_goes_on_to_the_bit(name, "own loop", path),
        lambda name, path: test_hostile_input_never_reaches_the_actuator(name),
        lambda name, path: test_where_nothing_changed_the_base_action_leaves(name, "vector"),
    ],
    ids=["forms", "saving", "hostile", "idle"],
)
def test_a_learner_of_ones_own_by_being_registered(
    check: Callable[[str, Path], None], damper: str, tmp_path: Path
) -> None:
    check(damper, tmp_path)
