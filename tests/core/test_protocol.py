"""Every algorithm with every signal it can take: one contract for all (`core/algorithm.py`)."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import windward as ww

from .drive import GAMMA, act, compiled, draws, leaves_equal, rollout, start, world

H, T, B = 2, 12, 3
RATE = 1e-4  # small enough for the variance of PD1 in so few steps


def recipes():
    """(name, recipe, its arguments) for every algorithm and every signal it can take."""
    common = {"d_u": 2, "d_w": 2, "h": H, "gamma": GAMMA, "eta": RATE}
    for signal in ("w", "pd1", "pd1-value", "pd2", "pd3"):
        yield f"mf_gpc {signal}", ww.mf_gpc, {**common, "signal": signal, "sigma": 0.5}
    for signal in ("pd1", "pd2", "pd3"):
        for preset in (None, "paper"):
            yield f"dmf_gpc {signal} {preset}", ww.dmf_gpc, {
                **common, "signal": signal, "preset": preset
            }  # fmt: skip
    for signal in ("w", "pd1", "pd2", "pd3"):
        yield f"bandit_gpc {signal}", ww.bandit_gpc, {**common, "signal": signal, "delta": 0.5}
    for signal in ("w", "pd2", "pd3"):
        yield f"bpc {signal}", ww.bpc, {**common, "signal": signal, "delta": 0.5}
    yield "base_only", ww.base_only, {"d_u": 2, "d_w": 2}


CASES = {name: (recipe, arguments) for name, recipe, arguments in recipes()}


def make(name, **more):
    recipe, arguments = CASES[name]
    return recipe(**{**arguments, **more})


def count_traces(algorithm):
    """The algorithm with an observe that counts how often it is traced."""
    traces = []

    def observe(*args):
        traces.append(1)
        return algorithm.observe(*args)

    return algorithm._replace(observe=observe), traces


one_step = jax.jit(world, static_argnums=0)


def on_the_host(algorithm, observe, hyper, units):
    """The same run as `rollout`, step by step, actions made in NumPy."""
    state, plan = compiled(algorithm.init)(hyper, units[0])
    begin = np.asarray(start(B))
    x, plans, infos = begin, [], []
    for t, unit in enumerate(units[1:]):
        u = act(algorithm, jax.tree.map(np.asarray, plan), x)
        assert isinstance(u, np.ndarray)
        tr = one_step(algorithm.needs, x, u, t)
        state, plan, info = observe(state, tr, unit)
        ended = np.asarray(tr.terminated | tr.truncated)[:, None]
        x = np.where(ended, begin, tr.x_next)
        plans.append(plan)
        infos.append(info)
    return state, *(jax.tree.map(lambda *a: np.stack(a), *each) for each in (plans, infos))


@pytest.mark.parametrize("name", CASES)
def test_protocol(name):
    algorithm = make(name)
    keys = jax.random.split(jax.random.key(0), 3)
    units = jax.vmap(lambda key: draws(algorithm, key, T, B))(keys)
    # Seeds and a learning rate for each of them in one program; the last lane does not learn.
    hyper = {**algorithm.hyper, "eta": np.array([RATE, RATE, 0.0])}
    axes = {key: 0 if key == "eta" else None for key in hyper}
    program_traces = []

    def run(hyper, units):
        program_traces.append(1)
        return rollout(algorithm, hyper, units)

    program = jax.jit(jax.vmap(run, (axes, 0)))
    state, (plans, infos, costs) = program(hyper, units)

    # It runs: finite, of the right shapes, every step accepted.
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((state, plans, infos, costs)))
    assert plans.correction.shape == plans.draw.shape == (3, T, B, 2)
    assert infos.w_hat.shape == (3, T, B, 2)
    assert infos.accepted.all()
    np.testing.assert_array_equal(state.local.t, np.full((3, B), T))

    # It learns where it should, and M = 0 corrects nothing.
    M = np.asarray(state.learner.M)
    assert M.shape == (3, algorithm.h, 2, 2)
    assert (M[2] == 0).all()
    assert (np.asarray(plans.correction)[2] == 0).all()
    if name == "base_only":
        assert (M == 0).all()
        assert (np.asarray(plans.draw) == 0).all()
    else:
        assert np.abs(M[0]).max() > 0
        assert np.abs(M[0] - M[1]).max() > 0  # other seeds, other floats

    # Same seed, same floats; another learning rate compiles nothing new.
    assert leaves_equal(program(hyper, units), (state, (plans, infos, costs)))
    program({**hyper, "eta": RATE * np.array([2.0, 1.0, 0.5])}, units)
    assert len(program_traces) == 1

    # A scan over vmapped seeds equals a host loop, and observe is traced once.
    counted, traces = count_traces(algorithm)
    observe = jax.jit(counted.observe)
    alone = on_the_host(algorithm, observe, {**hyper, "eta": RATE}, units[0])
    together = jax.tree.map(lambda leaf: leaf[0], (state, plans, infos))
    for a, b in zip(jax.tree.leaves(alone), jax.tree.leaves(together), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)
    on_the_host(algorithm, observe, {**hyper, "eta": 2 * RATE}, units[1])
    assert len(traces) == 1


@pytest.mark.parametrize("name", CASES)
def test_equal_recipes_share_their_functions(name):
    a, b = make(name), make(name, **({} if name == "base_only" else {"eta": 0.5}))
    for field in ("init", "observe", "unit", "apply"):
        assert getattr(a, field) is getattr(b, field)
    if name != "base_only":
        assert float(b.hyper["eta"]) == 0.5


def test_what_is_compiled_in_makes_other_functions():
    plain = ww.mf_gpc(2, 2, H, signal="w")
    for other in (
        ww.mf_gpc(2, 2, H + 1, signal="w"),
        ww.mf_gpc(2, 2, H, signal="pd3"),
        ww.mf_gpc(2, 2, H, signal="w", gamma=0.5),
        ww.mf_gpc(2, 2, H, signal="w", delay=1),
        ww.mf_gpc(2, 2, H, signal="w", every_episodes=3),
        ww.mf_gpc(2, 2, H, signal="w", every_episodes="told"),
        ww.mf_gpc(2, 2, H, signal="w", projection=None),
        ww.mf_gpc(2, 2, H, signal="w", projection=ww.dac_set(1, 0.5)),
        ww.mf_gpc(2, 2, H, signal="w", parametrisation=ww.mlp(4)),
    ):
        assert other.observe is not plain.observe
    # ... and numbers do not: sigma, Sigma, weight decay, M0, the radius of a set, a grid.
    assert ww.mf_gpc(2, 2, H, signal="w", sigma=[0.1, 0.2], weight_decay=0.1).observe is (
        plain.observe
    )
    assert ww.mf_gpc(2, 2, H, signal="w", M0=np.ones((H, 2, 2))).observe is plain.observe
    assert ww.mf_gpc(2, 2, H, signal="w", Sigma=np.eye(2)).observe is plain.observe
    assert ww.mf_gpc(2, 2, H, signal="w", projection=ww.frobenius_ball(1)).observe is plain.observe
    assert ww.mf_gpc(2, 2, parametrisation=ww.mlp(4)).observe is (
        ww.mf_gpc(2, 2, parametrisation=ww.mlp(4), eta=1).observe
    )


@pytest.mark.parametrize(
    ("make_it", "name"),
    [
        (lambda: ww.mf_gpc(2, 2, eta=[1e-3, 1e-2]), "eta"),
        (lambda: ww.mf_gpc(2, 2, sigma=[0.1, 0.2]), "sigma"),
        (lambda: ww.bandit_gpc(2, 2, delta=[0.1, 0.2]), "delta"),
        (lambda: ww.bpc(2, 2, projection=ww.frobenius_ball([1, 2])), "radius"),
    ],
)
def test_a_grid_is_not_one_program(make_it, name):
    algorithm = make_it()
    with pytest.raises(ValueError, match=rf"^{name} must be one number in init.*\(2,\)"):
        algorithm.init(algorithm.hyper, algorithm.unit(jax.random.key(0), 1))


def test_draws_of_the_wrong_shape_are_refused():
    algorithm = ww.mf_gpc(2, 3)
    with pytest.raises(ValueError, match=r"^unit must have shape"):
        algorithm.init(algorithm.hyper, np.zeros((1, 3)))


OPTIONS = {
    "every_episodes": {"every_episodes": 2},
    "adam and decay": {"scale_by": optax.scale_by_adam(), "weight_decay": 0.1},
    "dac_set and delay": {"projection": ww.dac_set(1.5, 0.5), "delay": 2},
    "mlp": {"parametrisation": ww.mlp(4)},
}


@pytest.mark.parametrize("option", OPTIONS)
def test_options_run_in_a_scan(option):
    algorithm = make("mf_gpc w", eta=1e-2, **OPTIONS[option])
    units = draws(algorithm, jax.random.key(1), T, B)
    after, out = jax.jit(lambda units: rollout(algorithm, algorithm.hyper, units))(units)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((after, out)))
    before, _ = compiled(algorithm.init)(algorithm.hyper, units[0])
    moved = jax.tree.map(lambda a, b: np.abs(a - b).max(), before.learner.M, after.learner.M)
    assert max(jax.tree.leaves(moved)) > 0


@pytest.mark.parametrize("double", [False, True], ids=["float32", "float64"])
@pytest.mark.parametrize("name", [*CASES, *OPTIONS])
def test_observe_keeps_the_types_of_the_state(name, double):
    # A scan's carry and a compiled observe need it; shapes and types come without compiling.
    algorithm = make("mf_gpc w", **OPTIONS[name]) if name in OPTIONS else make(name)

    def types(tree):
        return jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype, leaf.weak_type), tree)

    with jax.enable_x64(double):

        def both(key):
            unit = algorithm.unit(key, B)
            before = algorithm.init(algorithm.hyper, unit)
            tr = world(algorithm.needs, start(B), act(algorithm, before[1], start(B)), 0)
            return before, algorithm.observe(before[0], tr, unit)[:2]

        before, after = jax.eval_shape(both, jax.random.key(0))
        assert types(before) == types(after)
        floats = {leaf.dtype for leaf in jax.tree.leaves(after) if leaf.dtype.kind == "f"}
        assert floats == {jnp.dtype("float64" if double else "float32")}
