"""What `simulate` returns: axes, seeds, grids, histories, determinism and compiling once."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import windward as ww

from . import reference

T = 60
Q, R, K = np.eye(2), np.eye(1), np.array([[0.42208244, 1.24392885]])
COSTS = {"K": K, "Q": Q, "R": R}
W = ww.linear.disturbances.sinusoid(T, 2, period=[20, 30])
TIGHT = {"rtol": 1e-9, "atol": 1e-11}


def bandit(**numbers):
    return ww.bandit_gpc(1, 2, h=2, **{"eta": 1e-4, "delta": 0.2, **numbers})


def assert_equal_runs(got, wanted, **tolerance):
    for name in ("x", "u", "cost", "w_hat", "w", "M"):
        np.testing.assert_allclose(
            getattr(got, name), getattr(wanted, name), err_msg=name, **(tolerance or TIGHT)
        )


def pick(run, *index):
    """One entry of a run's leading axes."""
    fields = {name: getattr(run, name) for name in ww.linear.Run._fields}
    return run._replace(**{n: f[index] for n, f in fields.items() if f is not None})


@pytest.fixture(scope="module")
def singles(double_integrator):
    """A function that runs one seed at one point, in float64, and remembers it."""
    done = {}

    def single(seed=0, eta=1e-4, delta=0.2):
        if (seed, eta, delta) not in done:
            with jax.enable_x64(True):
                algorithm = bandit(eta=eta, delta=delta)
                done[seed, eta, delta] = ww.linear.simulate(
                    double_integrator, algorithm, W, seed=seed, **COSTS
                )
        return done[seed, eta, delta]

    return single


# Axes.


def test_shapes_of_a_single_run(singles):
    run = singles()
    assert run.x.shape == run.w.shape == run.w_hat.shape == (T, 2)
    assert run.u.shape == (T, 1)
    assert run.cost.shape == (T,)
    assert run.M.shape == (2, 1, 2)
    assert run.diverged_at == T
    assert run.M_history is None
    assert run.gradient_norm is None
    assert all(isinstance(part, np.ndarray) for part in (run.x, run.u, run.cost, run.M))
    np.testing.assert_array_equal(run.w, W)


@pytest.mark.usefixtures("x64")
def test_a_sequence_of_seeds_is_a_leading_axis(double_integrator, singles):
    run = ww.linear.simulate(double_integrator, bandit(), W, seed=[3, 5, 0], **COSTS)
    assert run.x.shape == (3, T, 2)
    assert run.diverged_at.shape == (3,)
    for i, seed in enumerate((3, 5, 0)):
        assert_equal_runs(pick(run, i), singles(seed))
    one = ww.linear.simulate(double_integrator, bandit(), W, seed=[3], **COSTS)
    assert one.cost.shape == (1, T)


@pytest.mark.usefixtures("x64")
def test_one_disturbance_for_each_seed(double_integrator, singles):
    both = np.stack([W, 0.5 * W[::-1]])
    run = ww.linear.simulate(double_integrator, bandit(), both, seed=[3, 3], **COSTS)
    np.testing.assert_array_equal(run.w, both)
    assert_equal_runs(pick(run, 0), singles(3))
    assert np.abs(run.x[1] - run.x[0]).max() > 0.1


@pytest.mark.usefixtures("x64")
def test_arrays_of_hyperparameters_are_axes_in_front(double_integrator, singles):
    eta, delta = np.array([[1e-4], [3e-4]]), np.array([0.2, 0.5, 1.0])
    run = ww.linear.simulate(
        double_integrator, bandit(eta=eta, delta=delta), W, seed=[3, 5], **COSTS
    )
    assert run.cost.shape == (2, 3, 2, T)
    assert run.M.shape == (2, 3, 2, 2, 1, 2)
    assert run.diverged_at.shape == (2, 3, 2)
    for i, j, k in ((0, 0, 0), (1, 2, 1), (0, 1, 1)):
        assert_equal_runs(pick(run, i, j, k), singles((3, 5)[k], float(eta[i, 0]), float(delta[j])))


@pytest.mark.usefixtures("x64")
def test_a_grid_with_a_single_seed(double_integrator, singles):
    run = ww.linear.simulate(
        double_integrator, bandit(delta=np.array([0.2, 0.5])), W, seed=5, **COSTS
    )
    assert run.cost.shape == (2, T)
    assert_equal_runs(pick(run, 1), singles(5, delta=0.5))


@pytest.mark.usefixtures("x64")
def test_a_grid_of_radii(double_integrator):
    """The projection's numbers may be a grid too."""
    radii = np.array([0.01, 0.05])
    run = ww.linear.simulate(
        double_integrator, bandit(eta=1.0, projection=ww.frobenius_ball(radii)), W, **COSTS
    )
    np.testing.assert_allclose(np.sqrt((run.M**2).sum((1, 2, 3))), radii, rtol=1e-9)


def test_arrays_that_do_not_broadcast(double_integrator):
    algorithm = bandit(eta=np.ones(2), delta=np.ones(3))
    with pytest.raises(ValueError, match=r"must broadcast; got .*'eta': \(2,\).*'delta': \(3,\)"):
        ww.linear.simulate(double_integrator, algorithm, W, **COSTS)


# Arguments that shape the run.


@pytest.mark.usefixtures("x64")
def test_initial_state(double_integrator, singles):
    run = ww.linear.simulate(double_integrator, bandit(), W, x0=[3.0, -1.0], **COSTS)
    np.testing.assert_array_equal(run.x[0], [3.0, -1.0])
    np.testing.assert_array_equal(singles().x[0], 0)


@pytest.mark.usefixtures("x64")
def test_history_of_m(double_integrator):
    """M at steps 0, k, 2k, ... as it was when it acted (each step: see test_equivalence)."""
    algorithm = bandit(eta=1e-3, M0=np.full((2, 1, 2), 0.1))
    run = ww.linear.simulate(double_integrator, algorithm, W, M_every=7, **COSTS)
    trace = reference.bandit_gpc(
        double_integrator.A, double_integrator.B, K, reference.quadratic(Q, R), W,
        reference.draws(algorithm, 0, T), M0=np.full((2, 1, 2), 0.1), eta=1e-3, delta=0.2,
        project=lambda M: reference.to_ball(M, 10.0),
    )  # fmt: skip
    np.testing.assert_allclose(run.M_history, trace.M[:-1:7], rtol=1e-8, atol=1e-10)


@pytest.mark.usefixtures("x64")
def test_what_is_kept_and_that_keeping_less_changes_nothing(double_integrator, singles):
    keep = ("gradient_norm", "u")
    run = ww.linear.simulate(double_integrator, bandit(), W, keep=keep, **COSTS)
    for name in ("x", "u", "w_hat", "w", "gradient_norm"):
        assert (getattr(run, name) is not None) == (name in keep)
    for name in ("u", "cost", "M"):
        np.testing.assert_allclose(getattr(run, name), getattr(singles(), name), **TIGHT)


def test_the_precision_is_jaxs(double_integrator, singles):
    run = ww.linear.simulate(double_integrator, bandit(), W, **COSTS)
    assert run.x.dtype == run.M.dtype == np.float32
    assert singles().x.dtype == np.float64


# Determinism.


def test_same_seed_same_floats(double_integrator):
    runs = []
    for _ in range(2):
        np.random.default_rng()  # no hidden state anywhere
        np.random.seed(len(runs))  # noqa: NPY002
        runs.append(ww.linear.simulate(double_integrator, bandit(), W, seed=11, **COSTS))
    for name in ("x", "u", "cost", "w_hat", "M"):
        np.testing.assert_array_equal(getattr(runs[0], name), getattr(runs[1], name))


def test_different_seed_different_draws(singles):
    noise = [singles(seed).u[0, 0] for seed in (0, 3, 5)]
    assert {abs(round(n, 9)) for n in noise} == {0.2}  # δ times a sign
    assert np.abs(singles(3).u - singles(5).u).max() > 0.1


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("numbers", "steps"), [(1, T), (20, 59)])
def test_the_block_of_draws_changes_nothing(
    double_integrator, singles, monkeypatch, numbers, steps
):
    """One step at a time, and blocks that do not divide the run; what comes later is no matter."""
    module = importlib.import_module("windward.linear.simulate")
    monkeypatch.setattr(module, "DRAWS_AT_ONCE", numbers)
    run = ww.linear.simulate(double_integrator, bandit(), W[:steps], seed=3, **COSTS)
    for name in ("x", "u", "cost", "w_hat"):
        np.testing.assert_allclose(getattr(run, name), getattr(singles(3), name)[:steps], **TIGHT)


# Compiling.


def test_numbers_do_not_recompile(double_integrator):
    """A cost is traced once for each program: eta, w, K, x0, seeds and A are all inputs."""
    traces = []

    def counted(x, u):
        traces.append(1)
        return jnp.sum(x**2) + jnp.sum(u**2)

    def run(system=double_integrator, w=W, K=K, seed=0, x0=None, **numbers):
        return ww.linear.simulate(
            system, bandit(**numbers), w, K=K, seed=seed, x0=x0, cost=counted, keep=()
        )

    first = run()
    once = len(traces)
    assert once > 0
    others = [
        run(eta=1e-5), run(delta=0.3), run(w=2 * W), run(K=1.1 * K), run(x0=[1.0, 0.0]),
        run(seed=9), run(projection=ww.frobenius_ball(3.0)),
        run(system=ww.linear.System(0.9 * double_integrator.A, double_integrator.B)),
    ]  # fmt: skip
    assert len(traces) == once
    for other in others[1:-2]:
        assert np.abs(other.cost - first.cost).max() > 1e-3  # and they did act
    run(w=W[:30])
    assert len(traces) > once  # another length is another program


# Disturbances that answer back.


@pytest.fixture(scope="module")
def adversarial(double_integrator):
    w = ww.linear.disturbances.adversarial(T=500, bound=0.3)
    return ww.linear.simulate(double_integrator, bandit(), w, seed=[0, 1], **COSTS)


def test_an_adversary_pushes_along_the_gradient_of_the_value(double_integrator, adversarial):
    A, B = double_integrator.A, double_integrator.B
    np.testing.assert_allclose(np.linalg.norm(adversarial.w, axis=-1), 0.3, rtol=1e-5)
    P = reference.discounted(A - B @ K, Q + K.T @ R @ K, 1.0)
    ahead = adversarial.x.astype(float) @ A.T + adversarial.u.astype(float) @ B.T
    push = ahead @ P
    push *= 0.3 / np.linalg.norm(push, axis=-1, keepdims=True)
    np.testing.assert_allclose(adversarial.w, push, atol=1e-3)
    reached = ahead + adversarial.w
    np.testing.assert_allclose(adversarial.x[:, 1:], reached[:, :-1], rtol=1e-4, atol=1e-4)


def test_an_adversary_costs_more_than_chance(double_integrator):
    """Under the base policy; at a zero state without gradient it takes the costliest axis."""
    A, B = double_integrator.A, double_integrator.B
    w = ww.linear.disturbances.adversarial(T=500, bound=0.3)
    run = ww.linear.simulate(double_integrator, ww.base_only(1, 2), w, **COSTS)
    axis = np.linalg.eigh(reference.discounted(A - B @ K, Q + K.T @ R @ K, 1.0))[1][:, -1]
    assert abs(run.w[0] @ axis) == pytest.approx(0.3, rel=1e-5)
    chance = np.random.default_rng(0).normal(size=(500, 2))
    chance *= 0.3 / np.linalg.norm(chance, axis=1, keepdims=True)
    by_chance = reference.fixed(A, B, K, reference.quadratic(Q, R), chance, np.zeros((1, 1, 2)))
    assert run.cost.mean() > 2 * by_chance.cost.mean()


def test_the_best_controller_of_an_adversary_can_be_found(double_integrator, adversarial):
    best = ww.linear.best_dac(double_integrator, adversarial.w[0], **COSTS)
    assert ww.linear.regret(pick(adversarial, 0), best)[-1] > 0


# The paper's reduction: an unstable system under a stabilising, poor gain.


def test_bandit_gpc_beats_a_stabilising_gain_on_an_unstable_system():
    system = ww.linear.System([[1.2, 0.5], [0.0, 0.9]], np.eye(2))
    assert np.abs(np.linalg.eigvals(system.A)).max() > 1
    settings = {"K": [[0.6, 0.5], [0.0, 0.4]], "Q": np.eye(2), "R": 0.1 * np.eye(2), "keep": ()}
    w = ww.linear.disturbances.sinusoid(3000, 2, period=[40, 25], phase=[0, 1])
    base = reference.fixed(
        system.A, system.B, np.array(settings["K"]),
        reference.quadratic(settings["Q"], settings["R"]), w, np.zeros((1, 2, 2)),
    ).cost  # fmt: skip
    run = ww.linear.simulate(
        system, ww.bandit_gpc(2, 2, h=2, eta=3e-4, delta=0.3), w, seed=range(10), **settings
    ).cost
    last = run[:, -1000:].mean(-1)
    upper = last.mean() + 3 * last.std(ddof=1) / np.sqrt(10)
    assert upper < 0.3 * base[-1000:].mean()
    assert (run.mean(-1) < base.mean()).all()  # learning included, for every seed
