"""Costs as functions: of (x, u), of (x, u, t), and with settings of their own."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest

from windward.linear.costs import quadratic_cost, with_time

X, U, TIME = jnp.array([1.0, -2.0]), jnp.array([3.0]), jnp.asarray(7)


def squares(x, u):
    return jnp.sum(x**2) + jnp.sum(u**2)


def timed(x, u, t):
    return t * squares(x, u)


def scaled(x, u, scale=2.0):
    return scale * squares(x, u)


class Weighted:
    def __call__(self, x, u, t):
        return 10 * t + squares(x, u)


@pytest.mark.parametrize(
    ("cost", "expected"),
    [
        (squares, 14),
        (timed, 98),
        (lambda x, u, step: step + 0 * x[0], 7),
        (Weighted(), 84),
        (scaled, 28),  # its third argument is its own, not the time
        (functools.partial(scaled, scale=3.0), 42),
    ],
    ids=["x-u", "x-u-t", "lambda", "object", "own default", "partial"],
)
def test_the_time_is_passed_to_those_who_ask(cost, expected):
    assert with_time(cost)({}, X, U, TIME) == expected


def test_one_function_is_wrapped_once():
    """So that programs compiled for it are found again."""
    assert with_time(squares) is with_time(squares)


def test_quadratic():
    Q, R = np.array([[2.0, 1.0], [1.0, 3.0]]), np.array([[0.5]])
    assert quadratic_cost({"Q": Q, "R": R}, X, U, TIME) == 2 - 4 + 12 + 4.5
