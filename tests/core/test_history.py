"""Newest-first windows."""

import jax.numpy as jnp
import numpy as np

from windward.core import history


def test_push_puts_the_newest_first_and_drops_the_oldest():
    window = {"a": jnp.array([[3], [2], [1]]), "b": jnp.array([30.0, 20.0])}
    pushed = history.push(window, {"a": jnp.array([4]), "b": jnp.array(40.0)})
    assert pushed["a"].tolist() == [[4], [3], [2]]
    assert pushed["b"].tolist() == [40.0, 30.0]


def test_past_windows_are_what_the_policy_saw_i_steps_ago():
    # At t = 6 the history is ŵ_5, ŵ_4, ŵ_3, ŵ_2; the window of step t - i is ŵ_{5-i}, ŵ_{4-i}.
    w_hist = jnp.array([[5, -5], [4, -4], [3, -3], [2, -2]])
    windows = history.past_windows(w_hist, h=2, lags=3)
    assert windows[..., 0].tolist() == [[5, 4], [4, 3], [3, 2]]
    assert windows[..., 1].tolist() == [[-5, -4], [-4, -3], [-3, -2]]


def test_keep_if_and_zero_if_choose_whole_trees():
    new, old = {"a": jnp.ones(2), "b": jnp.array(5)}, {"a": jnp.zeros(2), "b": jnp.array(7)}
    assert history.keep_if(jnp.array(True), new, old)["b"] == 5
    assert history.keep_if(jnp.array(False), new, old)["b"] == 7
    np.testing.assert_array_equal(history.zero_if(jnp.array(True), new)["a"], [0, 0])
    np.testing.assert_array_equal(history.zero_if(jnp.array(False), new)["a"], [1, 1])


def test_zero_if_is_a_choice_and_not_a_product():
    assert history.zero_if(jnp.array(True), jnp.array(jnp.nan)) == 0
