"""Cases of the study: fixed by their seed, and all that the study is meant to show."""

from collections import Counter
from itertools import chain

import gymnasium as gym
import mujoco
import numpy as np
import pytest

import windward as ww
from windward.studies.diagnosis import cases as study
from windward.studies.diagnosis.cases import Case, cases
from windward.studies.diagnosis.goals import GROUPS

FIRST = 2000


def whole(group: str) -> list[Case]:
    return list(cases(group, FIRST, GROUPS[group].seeds))


def test_a_case_depends_on_its_seed_alone() -> None:
    assert set(study.GROUPS) == set(GROUPS)
    for group in GROUPS:
        together = list(cases(group, FIRST, 2))
        one_by_one = [each for seed in (FIRST, FIRST + 1) for each in cases(group, seed, 1)]
        assert together == one_by_one
        draws = [[(c.changes, c.wind) for c in cases(group, FIRST + i, 1)] for i in range(2)]
        if group not in ("nothing", "foreign"):
            assert draws[0] != draws[1]


def test_changes_of_single_parameters_cover_all_kinds_and_bodies_within_half_and_twice() -> None:
    found = whole("single")
    assert {each.env for each in found} == set(study.PLANAR)
    assert min(Counter(each.env for each in found).values()) >= 30
    hopper = {name for each in found if each.env == "Hopper-v5" for name in each.changes}
    bodies = {f"mass:{body}" for body in ("torso", "thigh", "leg", "foot")}
    assert hopper == bodies | {"friction", "gain", "damping"}
    for each in chain(found, whole("pairs"), whole("all")):
        factors = np.array(list(each.changes.values()))
        assert ((factors >= 0.5) & (factors <= 2)).all()
        assert (np.abs(np.log(factors)) > 0.099).all()
    assert all(len(each.changes) == 2 for each in whole("pairs") if each.env != "Pendulum-v1")
    assert all(len(each.changes) == len(study.names(each.env)) for each in whole("all"))


def test_groups_have_as_many_cases_as_are_asked_for() -> None:
    counts = {group: len(whole(group)) for group in GROUPS}
    assert counts["nothing"] >= 200
    assert counts["coverage"] >= 400
    assert min(counts["early"], counts["foreign"]) >= 60
    assert min(counts.values()) >= 30
    assert {each.env for each in whole("spatial")} == set(study.SPATIAL)
    nothing = whole("nothing")
    assert not any(each.changes for each in nothing)
    assert {each.channel.partition(":")[0] for each in nothing} == {
        "", "action", "force", "observation",
    }  # fmt: skip
    assert all(each.steps == 50 for each in whole("early"))
    kinds = {(each.foreign, each.policy) for each in whole("foreign")}
    assert kinds == {(kind, by) for kind in study.FOREIGN for by in ("shipped", "random")}


def test_ten_seeds_are_the_whole_grid_without_its_upper_ends() -> None:
    found = whole("rrls")
    for env, (friction, ends, mass, bounds) in study.RRLS.items():
        own = [each.changes for each in found if each.env == env]
        points = {(each["friction"], each["mass:torso"]) for each in own}
        assert len(points) == len(own) == 100
        for (low, high), first, values in zip(
            (ends, bounds), (friction, mass), zip(*points, strict=True), strict=True
        ):
            assert min(values) * first == pytest.approx(low, rel=1e-2)
            assert max(values) * first == pytest.approx(high - (high - low) / 10, rel=1e-3)


def test_kinds_that_show_only_as_ratios_are_the_same_motion() -> None:
    for env in (*study.RATIOS, "Hopper-v5"):
        made = gym.make(env)
        made.reset(seed=0)
        kinds = study.RATIOS.get(env, ("mass", "gain", "damping"))
        x = ww.simulator(made).state()[None] + np.linspace(0, 0.3, 20)[:, None]
        made.action_space.seed(0)
        u = np.array([made.action_space.sample() for _ in x])
        gaps = [
            np.abs(
                ww.simulator(made, scale=dict.fromkeys(scaled, 1.3)).step(x, u)[0]
                - ww.simulator(made).step(x, u)[0]
            ).max()
            for scaled in (kinds, kinds[:1])
        ]
        assert (gaps[0] < 1e-9) == (env in study.RATIOS)
        assert gaps[1] > 1e-3


@pytest.mark.parametrize("kind", study.FOREIGN)
@pytest.mark.parametrize("env", study.WALKING)
def test_foreign_changes_move_another_way_and_stay_finite(env: str, kind: str) -> None:
    worlds = [Case("foreign", env, 0, {}, foreign=each).world() for each in (kind, "")]
    ends = []
    for world in worlds:
        world.action_space.seed(0)
        world.reset(seed=0)
        for _ in range(100):
            world.step(world.action_space.sample())
        data = world.unwrapped.data  # type: ignore[attr-defined]
        assert data.warning[mujoco.mjtWarning.mjWARN_BADQACC].number == 0
        ends.append(data.qpos.copy())
        world.close()
    assert np.abs(ends[0] - ends[1]).max() > 1e-3
