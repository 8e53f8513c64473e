"""Errors of a diagnosis, against numbers worked out by hand or by MuJoCo."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import windward as ww
from windward.diagnosis.diagnosis import Change, Diagnosis
from windward.diagnosis.wind import Axis, Model, Sine, Wind
from windward.simulators.simulator import Simulator, simulator
from windward.studies.diagnosis import measure
from windward.studies.diagnosis.cases import Case
from windward.studies.diagnosis.measure import errors, missed, totals, wind_errors, wrong_kind


def nominal(env: str) -> Simulator:
    return simulator(gym.make(env), noisy=False)


def elements(env: str) -> Any:
    return nominal(env).dynamics.parameters.elements


def said(changes: dict[str, float], unseen: tuple[str, ...] = ()) -> Diagnosis:
    """A diagnosis that reports changes, and calls others not seen."""
    found = {name: Change(value, value - 0.1, value + 0.1) for name, value in changes.items()}
    hidden = {name: Change(1.0, 0.4, 2.7, seen=False) for name in unseen}
    return Diagnosis(changes=found, factors=found | hidden, wind=None, unexplained=0.0)


def error(env: str, true: dict[str, float], found: Diagnosis) -> measure.Errors:
    return errors(Case("single", env, 0, true), found, elements(env))


def test_the_worst_parameter_counts_whether_it_changed_or_not() -> None:
    true = {"mass:torso": 1.5, "gain": 0.8}
    assert error("Hopper-v5", true, said(true)).worst == 0
    close = {"mass:torso": 1.53, "gain": 0.804}
    assert error("Hopper-v5", true, said(close)).worst == pytest.approx(0.02)
    assert error("Hopper-v5", true, said({"mass:torso": 1.5})).worst == pytest.approx(0.25)
    false = true | {"damping:foot_joint": 1.1}
    assert error("Hopper-v5", true, said(false)).worst == pytest.approx(0.1)
    amount = true | {"com:torso.x": 0.03}
    assert error("Hopper-v5", true, said(amount)).worst == pytest.approx(0.03)
    assert error("Hopper-v5", true, said(true | {"delay": 1.0})).worst == 1
    # All masses alike, by one name or four.
    each = {f"mass:{body}": 1.2 for body in ("torso", "thigh", "leg", "foot")}
    assert error("Hopper-v5", {"mass": 1.2}, said(each)).worst == pytest.approx(0)


def test_what_is_not_seen_counts_only_where_it_is_reported() -> None:
    true = {"friction": 0.7}
    assert error("Hopper-v5", true, said({})).worst == pytest.approx(1 / 0.7 - 1)
    found = error("Hopper-v5", true, said({}, unseen=("friction",)))
    assert found.worst == 0
    assert found.unseen > 0
    wrong = said({"mass:foot": 1.3}, unseen=("mass:foot",))
    assert error("Hopper-v5", {}, wrong).worst == pytest.approx(0.3)


def test_a_factor_common_to_masses_gains_and_dampings_is_taken_out_where_it_cannot_show() -> None:
    true = {"gain": 1.25, "damping": 1.25}
    same = {"mass": 0.8}
    found = error("InvertedPendulum-v5", true, said(same))
    assert found.worst == pytest.approx(0)
    assert np.exp(found.common) == pytest.approx(0.8)
    assert error("Hopper-v5", true, said(same)).worst == pytest.approx(0.2)
    # Of five factors one is wrong by 10 %: that is the error, whatever is common.
    off = error("InvertedPendulum-v5", true, said({"mass": 0.8, "gain": 1.1}))
    assert off.worst == pytest.approx(0.1)
    # The same motion needs a force that is multiplied as well.
    case = Case("wind", "InvertedPendulum-v5", 0, true, "", "force:pole", amplitude=5, period=90)
    blown = wind_errors(case, force("force:pole", 4.0, 90), found.common)
    assert blown == pytest.approx({"misplaced": 0, "size_error": 0, "period_error": 0}, abs=1e-12)


def force(place: str, size: float, period: float, axis: str = "x") -> Wind:
    model = Model(0.0, 0.0, 0, (Sine(size, period),), (), 0.0)
    return Wind(place, "N", (Axis(axis, size, 1.0, model),), (), 1.0, (), None)


def test_errors_of_a_force() -> None:
    case = Case("wind", "Hopper-v5", 0, {}, "", "force:torso", amplitude=5.0, period=100.0)
    found = wind_errors(case, force("force:torso", 5.1, 97.0))
    assert found == pytest.approx({"misplaced": 0, "size_error": 0.02, "period_error": 0.03})
    assert wind_errors(case, force("force:leg", 5.0, 100.0))["misplaced"] == 1
    assert wind_errors(case, force("force:torso", 5.0, 100.0, "z"))["misplaced"] == 1
    assert wind_errors(case, None) == {"misplaced": 1, "size_error": 1.0, "period_error": 1.0}


def test_totals_are_those_of_the_changed_model() -> None:
    true, found = {"mass": 1.3}, {"mass:torso": 1.5, "mass:leg": 1.2, "gain:leg_joint": 1.2}
    masses = []
    for changes in (true, found):
        with ww.envs.Changed(gym.make("Hopper-v5"), changes) as env:
            model = env.unwrapped.model  # type: ignore[attr-defined]
            masses.append(model.body_mass.sum())
    of = totals(true, said(found), nominal("Hopper-v5"))
    assert of["mass_error"] == pytest.approx(abs(masses[1] / masses[0] - 1))
    assert of["gain_error"] == pytest.approx(0.2 / 3)  # of three motors of the same gear


def test_intervals_and_kinds() -> None:
    true = {"mass:torso": 1.5, "gain": 0.8}
    known = elements("Hopper-v5")
    assert missed(true, said({"mass:torso": 1.55, "gain": 0.75}), known) == 0
    assert missed(true, said({"mass:torso": 1.65, "gain": 0.75}), known) == 1
    each = {f"gain:{joint}": 0.75 for joint in known["gain"]}
    assert missed(true, said({"mass:torso": 1.5, **each}), known) == 0
    assert missed(true, said({"mass:torso": 1.5}), known) == 1  # no interval at all
    assert missed({"friction": 0.7}, said({}, unseen=("friction",)), known) == 0
    assert wrong_kind({"mass:torso": 1.5}, {"mass": 1.2}) == 0
    assert wrong_kind({"mass:torso": 1.5}, {"mass": 1.2, "gain": 0.9}) == 1
    assert wrong_kind({"mass:torso": 1.5}, {}) == 1


def test_a_case_that_cannot_be_diagnosed_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> Diagnosis:
        raise ValueError("step 3 jumps")

    case = Case("single", "Pendulum-v1", 2000, {"mass": 1.3})
    good = measure.measure(case)
    assert (good["failure"], good["found"]) == ("", '{"mass": 1.3}')
    assert good["error"] < 1e-3
    assert good["seconds"] > 0
    monkeypatch.setattr(measure, "diagnose", refuse)
    bad = measure.measure(case)
    assert list(bad) == list(good)
    assert (bad["failure"], bad["error"], bad["seconds"]) == ("step 3 jumps", None, None)
