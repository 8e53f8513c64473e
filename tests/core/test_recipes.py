"""Bad arguments of the recipes: a ValueError that names the argument and says what would do."""

import numpy as np
import pytest

import windward as ww

nan = float("nan")
LEARNERS = [ww.mf_gpc, ww.dmf_gpc, ww.bandit_gpc, ww.bpc]
ALL_SIGNALS = ("'w'", "'pd1'", "'pd1-value'", "'pd2'", "'pd3'")


def refuses(recipe, name, **more):
    """The message of a recipe called with d_u = d_w = 2, which must begin with `name`."""
    with pytest.raises(ValueError, match=rf"^{name}\b") as caught:
        recipe(**{"d_u": 2, "d_w": 2, **more})
    return str(caught.value)


@pytest.mark.parametrize("recipe", LEARNERS)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("h", 0),
        ("h", -1),
        ("h", 2.0),
        ("h", "5"),
        ("h", True),
        ("h", None),
        ("d_u", 0),
        ("d_u", 2.5),
        ("d_w", 0),
        ("d_w", "2"),
        ("eta", -1e-3),
        ("eta", nan),
        ("eta", np.inf),
        ("eta", "fast"),
        ("eta", [1e-3, -1e-3]),
        ("weight_decay", -0.1),
        ("weight_decay", nan),
        ("gamma", 0),
        ("gamma", -0.5),
        ("gamma", 1.01),
        ("gamma", nan),
        ("gamma", [0.9, 0.99]),
        ("M0", np.zeros((5, 2, 3))),
        ("M0", np.zeros((2, 2))),
        ("M0", np.full((5, 2, 2), nan)),
        ("M0", "zero"),
    ],
)
def test_every_learner(recipe, name, value):
    refuses(recipe, name, **{name: value})


@pytest.mark.parametrize("recipe", LEARNERS)
@pytest.mark.parametrize("signal", ["pd4", "PD1", "", None, 3])
def test_an_unknown_signal_lists_the_options(recipe, signal):
    message = refuses(recipe, "signal", signal=signal)
    assert all(option in message for option in ALL_SIGNALS)
    assert repr(signal) in message


@pytest.mark.parametrize("recipe", [ww.bandit_gpc, ww.bpc])
@pytest.mark.parametrize("delta", [0, -0.1, nan, np.inf, "a", [0.1, 0.0]])
def test_delta(recipe, delta):
    refuses(recipe, "delta", delta=delta)


@pytest.mark.parametrize("sigma", [-0.1, nan, np.inf, "a", [0.1, -0.1]])
def test_sigma(sigma):
    refuses(ww.mf_gpc, "sigma", sigma=sigma)


@pytest.mark.parametrize("signal", ["pd1", "pd1-value"])
@pytest.mark.parametrize("sigma", [0, [0.1, 0.0]])
def test_pd1_needs_noise(signal, sigma):
    message = refuses(ww.mf_gpc, "sigma", sigma=sigma, signal=signal)
    assert repr(signal) in message
    assert "pd2 and pd3 work" in message


@pytest.mark.parametrize("signal", ["w", "pd2", "pd3"])
def test_other_signals_do_without(signal):
    assert float(ww.mf_gpc(2, 2, sigma=0, signal=signal).hyper["sigma"]) == 0


@pytest.mark.parametrize(
    "Sigma",
    [
        pytest.param(np.eye(3), id="shape"),
        pytest.param([1.0, 1.0, 1.0], id="diagonal's shape"),
        pytest.param(1.0, id="scalar"),
        pytest.param(np.ones((1, 2, 2)), id="rank"),
        pytest.param([[1.0, 0.5], [0.4, 1.0]], id="not symmetric"),
        pytest.param([[1.0, 2.0], [2.0, 1.0]], id="indefinite"),
        pytest.param([[1.0, 1.0], [1.0, 1.0]], id="singular"),
        pytest.param([1.0, -1.0], id="negative"),
        pytest.param([[1.0, nan], [nan, 1.0]], id="nan"),
    ],
)
def test_covariance(Sigma):
    refuses(ww.mf_gpc, "Sigma", Sigma=Sigma)


def test_covariance_by_its_diagonal():
    np.testing.assert_array_equal(
        ww.mf_gpc(2, 2, Sigma=[1.0, 2.0]).hyper["Sigma"], [[1, 0], [0, 2]]
    )


@pytest.mark.parametrize(
    ("recipe", "signal"),
    [
        (ww.mf_gpc, "pd1"),
        (ww.mf_gpc, "pd1-value"),
        (ww.dmf_gpc, "pd1"),
        (ww.bandit_gpc, "pd1"),
        (ww.bandit_gpc, "pd1-value"),
    ],
)
def test_pd1_lives_in_action_space(recipe, signal):
    message = refuses(recipe, "d_w", signal=signal, d_w=3)
    assert "d_u = 2" in message
    assert "d_w = 3" in message


@pytest.mark.parametrize("signal", ["pd1", "pd1-value"])
def test_bpc_has_no_noise_on_the_action(signal):
    message = refuses(ww.bpc, "signal", signal=signal)
    assert all(option in message for option in ("'w'", "'pd2'", "'pd3'"))


def test_discrete_actions_have_no_gradient_in_u():
    assert "'pd1'" in refuses(ww.dmf_gpc, "signal", signal="pd1-value")


def test_discrete_actions_are_at_least_two():
    refuses(ww.dmf_gpc, "d_u", d_u=1)


def test_preset():
    message = refuses(ww.dmf_gpc, "preset", preset="arxiv")
    assert "'paper'" in message


@pytest.mark.parametrize("recipe", [ww.mf_gpc, ww.dmf_gpc])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "tell", np.array([1, 2])])
def test_every_episodes(recipe, value):
    assert "'told'" in refuses(recipe, "every_episodes", every_episodes=value)


@pytest.mark.parametrize("recipe", LEARNERS)
@pytest.mark.parametrize("value", [10.0, "ball", ww.frobenius_ball])
def test_projection(recipe, value):
    refuses(recipe, "projection", projection=value)


@pytest.mark.parametrize("delta", [1.0, 2.0, [0.5, 1.0]])
def test_bpc_needs_room_to_move(delta):
    refuses(ww.bpc, "delta", delta=delta, projection=ww.frobenius_ball(1))
    ww.bandit_gpc(2, 2, delta=delta, projection=ww.frobenius_ball(1))


@pytest.mark.parametrize("value", [-1, 1.5, None])
def test_delay(value):
    refuses(ww.mf_gpc, "delay", delay=value)


@pytest.mark.parametrize("width", [0, 1.5, None])
def test_width(width):
    with pytest.raises(ValueError, match=r"^width must be an integer"):
        ww.mlp(width)


@pytest.mark.parametrize("recipe", [ww.mf_gpc, ww.dmf_gpc])
def test_M0_is_for_linear_policies(recipe):
    # An array M0 cannot start a network; better said here than inside a compiled program.
    refuses(recipe, "M0", M0=np.zeros((5, 2, 2)), parametrisation=ww.mlp(4))


@pytest.mark.parametrize(("name", "value"), [("d_u", 0), ("d_w", 0), ("d_u", 1.5), ("d_w", None)])
def test_base_only(name, value):
    refuses(ww.base_only, name, **{name: value})


def test_messages_say_what_was_given():
    assert "got -1" in refuses(ww.mf_gpc, "h", h=-1)
    assert "(5, 2, 2)" in refuses(ww.mf_gpc, "M0", M0=np.zeros((5, 2, 3)))
    assert "(5, 2, 3)" in refuses(ww.mf_gpc, "M0", M0=np.zeros((5, 2, 3)))
    assert "(0, 1]" in refuses(ww.mf_gpc, "gamma", gamma=2)


def test_what_an_algorithm_says_of_itself():
    algorithm = ww.mf_gpc(3, 2, h=4, eta=[0.1, 0.2], signal="pd2", gamma=0.7, M0=np.ones((4, 3, 2)))
    assert (algorithm.name, algorithm.signal, algorithm.gamma) == ("mf_gpc", "pd2", 0.7)
    assert (algorithm.d_u, algorithm.d_w, algorithm.h) == (3, 2, 4)
    assert algorithm.hyper["eta"].tolist() == [0.1, 0.2]
    assert "M0" not in algorithm.grid
    assert {"eta", "sigma", "weight_decay"} <= set(algorithm.grid)
    assert [recipe(2, 2).name for recipe in LEARNERS] == ["mf_gpc", "dmf_gpc", "bandit_gpc", "bpc"]
