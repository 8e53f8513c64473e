"""The checks behind every error message."""

import numpy as np
import pytest

from windward import checks


def test_good_values_come_back_as_numbers():
    assert checks.finite_array("a", [[1, 2]]).dtype == np.float64
    assert checks.integer("n", np.int64(3), 1) == 3
    assert type(checks.integer("n", np.int64(3), 1)) is int
    assert checks.positive("a", 0, zero=True) == 0
    assert checks.discount("gamma", 1) == 1.0
    np.testing.assert_array_equal(checks.psd("S", np.array([[2.0, 1.0], [1.0, 2.0]]))[0], [2, 1])
    checks.choice("c", "a", {"a": 1})
    checks.shape("a", np.zeros((2, 3)), (2, 3))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: checks.finite_array("a", "x"), "^a must be an array of numbers; got str"),
        (lambda: checks.finite_array("a", object()), "^a must be an array of numbers"),
        (lambda: checks.finite_array("a", 1j), "^a must be an array of numbers"),
        (lambda: checks.finite_array("a", [[1, 2], [3]]), "^a must be an array"),
        (lambda: checks.finite_array("a", [1], ndim=2), r"^a must have 2 dimension.*\(1,\)"),
        (lambda: checks.finite_array("a", 1, ndim=(1, 2)), "^a must have 1 or 2 dimension"),
        (
            lambda: checks.finite_array("a", [[0, 1], [np.inf, 2]]),
            r"^a must be finite; .*1, 0.*inf",
        ),
        (lambda: checks.shape("a", np.zeros(2), (3,), "why"), r"^a .*\(3,\) \(why\); got \(2,\)"),
        (lambda: checks.integer("n", 0, 1), "^n must be an integer of at least 1; got 0"),
        (lambda: checks.integer("n", True, 1), "^n must be an integer"),
        (lambda: checks.positive("a", [1, -1]), "^a must be greater than 0"),
        (lambda: checks.positive("a", []), "^a must hold at least one number"),
        (lambda: checks.positive("a", -1, zero=True), "^a must be at least 0"),
        (lambda: checks.discount("g", 0), r"^g must lie in \(0, 1\]; got 0"),
        (lambda: checks.choice("c", "z", {"a": 1, "b": 2}), "^c must be one of 'a', 'b'; got 'z'"),
        (lambda: checks.psd("S", np.array([[1.0, 2.0], [0.0, 1.0]])), "^S must be symmetric"),
        (lambda: checks.psd("S", -np.eye(2)), "^S must be positive semidefinite"),
        (lambda: checks.psd("S", np.zeros((2, 2)), definite=True), "^S must be positive definite"),
    ],
)
def test_bad_values_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_arrays_are_copies():
    mine = np.ones(2)
    theirs = checks.finite_array("a", mine)
    mine[0] = 5
    assert theirs[0] == 1


def test_semidefinite_is_enough_unless_definite_is_asked_for():
    checks.psd("S", np.zeros((2, 2)))
