"""Each case is another world than the nominal one, where its name says so, and as it says."""

from typing import Any

import numpy as np
import pytest

from windward.envs import Changed, Disturbed
from windward.studies.evaluation.episodes import begin
from windward.studies.recovery.cases import CASES, HARMLESS, LEARNED, RECOVERABLE, Case


def motion(case: Case, nominal: bool, steps: int = 3) -> np.ndarray:
    """Observations under equal actions from an equal start, in an episode with a wind."""
    env = case.nominal() if nominal else case.world()
    env.action_space.seed(0)
    seen = [begin(env, 3000, 0)]
    for _ in range(steps):
        seen.append(env.step(env.action_space.sample())[0])
    env.close()
    return np.array(seen)


@pytest.mark.parametrize("name", CASES)
def test_worlds_differ_from_the_nominal_one_where_they_should(name: str) -> None:
    case = CASES[name]
    same = not case.changes and not case.wind
    late = name in ("pendulum-step", "hopper-friction", "halfcheetah-friction")
    steps = 110 if late else 3  # a step of the wind, or a first contact
    equal = np.array_equal(motion(case, True, steps), motion(case, False, steps))
    assert equal == same


@pytest.mark.parametrize(
    ("name", "array", "factors"),
    [("hopper-mass", "body_mass", [1.1] * 4), ("hopper-torso", "body_mass", [1.3, 1, 1, 1]),
     ("hopper-light-torso", "body_mass", [0.03, 1, 1, 1]),
     ("halfcheetah-torso", "body_mass", [1.5, *[1] * 6]),
     ("hopper-gain", "actuator_gainprm", [0.8] * 3),
     ("inverted-pendulum-mass", "body_mass", [1, 2])],
)  # fmt: skip
def test_changes_are_as_named(name: str, array: str, factors: list[float]) -> None:
    envs: list[Any] = [CASES[name].nominal(), CASES[name].world()]
    nominal, changed = (getattr(env.unwrapped.model, array) for env in envs)
    if array == "body_mass":
        nominal, changed = nominal[1:], changed[1:]  # the world has none
    else:
        nominal, changed = nominal[:, 0], changed[:, 0]
    np.testing.assert_allclose(changed / nominal, factors)


def test_layers_and_goals() -> None:
    assert len(RECOVERABLE) + len(HARMLESS) + len(LEARNED) == len(CASES) == 47
    assert all(each.learned and each.since == 3 for each in LEARNED.values())
    assert CASES["hopper-mass-learned-10000"].changes == CASES["hopper-mass"].changes
    assert isinstance(CASES["halfcheetah-force"].world(), Disturbed)
    assert isinstance(CASES["halfcheetah-torso"].world(), Changed)
    assert (CASES["halfcheetah-mass"].first, CASES["halfcheetah-mass"].later) == (0.45, 0.75)
    assert CASES["hopper-force"].first is None
    assert CASES["inverted-pendulum-sine-70"].each
    assert dict(CASES["hopper-simulator-0.7"].scale) == {"mass": 0.7, "friction": 0.7}
    assert all(case.limit is None for case in RECOVERABLE.values())
    assert {case.limit for case in HARMLESS.values()} == {1.0, 3.0}
