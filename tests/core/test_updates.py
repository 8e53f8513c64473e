"""From a gradient to the next M: delay, every k episodes, weight decay, preconditioning."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import windward as ww
from windward.core import updates

from .drive import play, step

pytestmark = pytest.mark.usefixtures("x64")


def drive(transform, gradients, M, hyper=None, episodes=None):
    """The steps a transform makes of a list of gradients, and M after each of them."""
    hyper = {name: jnp.asarray(value, float) for name, value in (hyper or {}).items()}
    gradients = jax.tree.map(lambda *leaves: jnp.stack(leaves), *gradients)
    count = jax.tree.leaves(gradients)[0].shape[0]
    episodes = jnp.asarray(episodes or [0] * count, jnp.int32)

    def one(carry, now):
        M, state = carry
        g, ended = now
        update, state = transform.update(g, state, M, hyper=hyper, episodes=ended)
        M = optax.apply_updates(M, update)
        return (M, state), (update, M)

    _, out = jax.lax.scan(one, (M, transform.init(M)), (gradients, episodes))
    return out


@pytest.mark.parametrize(
    ("k", "wanted"),
    [(0, [1, 2, 3, 4, 5]), (1, [0, 1, 2, 3, 4]), (3, [0, 0, 0, 1, 2]), (7, [0, 0, 0, 0, 0])],
)
def test_delay_is_first_in_first_out(k, wanted):
    gradients = [{"a": jnp.full(2, float(i)), "b": jnp.array(10.0 * i)} for i in range(1, 6)]
    out, _ = drive(updates.delay(k), gradients, {"a": jnp.zeros(2), "b": jnp.array(0.0)})
    assert out["a"][:, 1].tolist() == wanted
    assert out["b"].tolist() == [10.0 * w for w in wanted]


def test_every_k_episodes_sums_at_fixed_M_and_applies_once():
    # k = 2, η = ½, no decay. Gradients 1..7; episodes end at steps 2, 4 (due: 1+2+3+4 = 10) and,
    # two at once, at 6 (due: 5+6 = 11).
    transform = updates.every_k_episodes(2, updates.decay_and_step())
    gradients = [jnp.array([float(i)]) for i in range(1, 8)]
    out, Ms = drive(
        transform, gradients, jnp.array([100.0]), {"eta": 0.5, "weight_decay": 0.0},
        episodes=[0, 1, 0, 1, 0, 2, 0],
    )  # fmt: skip
    assert out.ravel().tolist() == [0, 0, 0, -5, 0, -5.5, 0]
    assert Ms.ravel().tolist() == [100, 100, 100, 95, 95, 89.5, 89.5]


@pytest.mark.parametrize("ended", [3, 4, 9])
def test_more_episodes_than_k_at_once_are_one_update(ended):
    transform = updates.every_k_episodes(3, updates.decay_and_step())
    out, _ = drive(
        transform, [jnp.array([1.0]), jnp.array([2.0]), jnp.array([4.0])], jnp.array([0.0]),
        {"eta": 1.0, "weight_decay": 0.0}, episodes=[0, ended, 0],
    )  # fmt: skip
    assert out.ravel().tolist() == [0, -3, 0]


def test_weight_decay_once_per_applied_update():
    # M - η(g + λM), η = ½, λ = 1/5: 10 -> 10 - ½(1 + 2) = 8.5 -> 8.5 - ½(2 + 1.7) = 6.65
    hyper = {"eta": 0.5, "weight_decay": 0.2}
    gradients = [jnp.array([1.0]), jnp.array([2.0])]
    _, Ms = drive(updates.gradient_step(), gradients, jnp.array([10.0]), hyper)
    np.testing.assert_allclose(Ms.ravel(), [8.5, 6.65], rtol=1e-12)
    # Every 2 episodes the decay waits with the gradient: 10 - ½(1 + 2 + 2) = 7.5, once.
    _, Ms = drive(
        updates.gradient_step(every_episodes=2), gradients, jnp.array([10.0]), hyper, [1, 1]
    )
    np.testing.assert_allclose(Ms.ravel(), [10, 7.5], rtol=1e-12)


def test_when_told_sums_at_fixed_M_and_applies_once():
    # η = ½, λ = 1/5, told before steps 3 and 4:
    # 10 -> 10 - ½(1 + 2 + 4 + 2) = 5.5 -> 5.5 - ½(8 + 1.1) = 0.95. Ends of episodes mean nothing.
    transform = updates.gradient_step(every_episodes=updates.TOLD)
    M, hyper = jnp.array([10.0]), {"eta": 0.5, "weight_decay": 0.2}
    state, Ms = transform.init(M), []
    for t, g in enumerate((1.0, 2.0, 4.0, 8.0, 16.0), start=1):
        state = updates.tell(state) if t in (3, 4) else state
        step, state = transform.update(jnp.array([g]), state, M, hyper=hyper, episodes=3)
        M = optax.apply_updates(M, step)
        Ms.append(M.item())
    assert Ms == pytest.approx([10, 10, 5.5, 0.95, 0.95], rel=1e-12)
    assert state.total.tolist() == [16.0]


def test_adam_is_stepped_when_told_alone():
    transform = updates.gradient_step(scale_by=optax.scale_by_adam(), every_episodes=updates.TOLD)
    M, hyper = jnp.array([0.0]), {"eta": 0.1, "weight_decay": 0.0}
    state, Ms = transform.init(M), []
    for t, g in enumerate((4.0, -1.0, 2.0), start=1):
        state = updates.tell(state) if t > 1 else state
        step, state = transform.update(jnp.array([g]), state, M, hyper=hyper, episodes=0)
        M = optax.apply_updates(M, step)
        Ms.append(M.item())
    first, second = adam_by_hand([3.0, 2.0])
    np.testing.assert_allclose(Ms, [0, -0.1 * first, -0.1 * (first + second)], rtol=1e-12)


def test_who_waits_to_be_told():
    M = jnp.zeros(1)
    for delay in (0, 2):
        waiting = updates.gradient_step(delay_by=delay, every_episodes=updates.TOLD).init(M)
        assert updates.waits(waiting)
        assert not updates.waits(updates.gradient_step(delay_by=delay).init(M))
    counting = updates.gradient_step(every_episodes=2).init(M)
    assert not updates.waits(counting)
    assert updates.tell(counting) == counting


def adam_by_hand(gradients, b1=0.9, b2=0.999, eps=1e-8):
    m = v = 0.0
    for t, g in enumerate(gradients, start=1):
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
        yield (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + eps)


def test_weight_decay_is_decoupled_under_adam():
    gradients, hyper = [4.0, -1.0, 2.0], {"eta": 0.1, "weight_decay": 0.5}
    transform = updates.gradient_step(scale_by=optax.scale_by_adam())
    _, Ms = drive(transform, [jnp.array([g]) for g in gradients], jnp.array([10.0]), hyper)
    M, wanted = 10.0, []
    for direction in adam_by_hand(gradients):
        M = M - 0.1 * (direction + 0.5 * M)
        wanted.append(M)
    np.testing.assert_allclose(Ms.ravel(), wanted, rtol=1e-12)


def test_adam_sees_only_applied_sums():
    # Episodes end at steps 2 and 3: Adam is stepped twice, on 4 - 1 = 3 and on 2.
    transform = updates.gradient_step(scale_by=optax.scale_by_adam(), every_episodes=1)
    _, Ms = drive(
        transform, [jnp.array([g]) for g in (4.0, -1.0, 2.0)], jnp.array([0.0]),
        {"eta": 0.1, "weight_decay": 0.0}, episodes=[0, 1, 1],
    )  # fmt: skip
    first, second = adam_by_hand([3.0, 2.0])
    np.testing.assert_allclose(Ms.ravel(), [0, -0.1 * first, -0.1 * (first + second)], rtol=1e-12)


def test_the_projection_comes_last():
    # 3 - 1·(-4) = 7 is brought to 5, and the next step starts there: 5 - 2 = 3.
    ball = ww.frobenius_ball(5)
    _, Ms = drive(
        updates.gradient_step(projection=ball), [jnp.array([-4.0]), jnp.array([2.0])],
        jnp.array([3.0]), {"eta": 1, "weight_decay": 0, **ball.hyper},
    )  # fmt: skip
    np.testing.assert_allclose(Ms.ravel(), [5, 3], rtol=1e-12)


def test_delay_comes_first():
    # delay 1, then every episode: the sum due at step 2 holds the gradient of step 1 alone.
    transform = updates.gradient_step(delay_by=1, every_episodes=1)
    _, Ms = drive(
        transform, [jnp.array([g]) for g in (1.0, 10.0, 100.0)], jnp.array([0.0]),
        {"eta": 1, "weight_decay": 0}, episodes=[0, 1, 1],
    )  # fmt: skip
    np.testing.assert_allclose(Ms.ravel(), [0, -1, -11], rtol=1e-12)


def test_recipes_pass_their_options_on():
    # σ = 1, h = 1, d = 1: the gradient of step t is c_t n_t ŵ_{t-1}; with ŵ = 1 and n = 1 from
    # step 2 on it is c_t. Costs 9, 1, 2, 3; M¹ = 10, η = ½, λ = 1/5.
    def Ms(**more):
        algorithm = ww.mf_gpc(
            1, 1, h=1, eta=0.5, sigma=1, signal="w", weight_decay=0.2, M0=[[[10]]], **more
        )
        steps = [step([c], w=[[1]], terminated=False) for c in (0, 1, 2, 3)]
        return [M.item() for M in play(algorithm, np.ones((5, 1, 1)), steps).Ms]

    # 10 -> 10 - ½·2 = 9 -> 9 - ½(1 + 1.8) = 7.6 -> 7.6 - ½(2 + 1.52) = 5.84
    #    -> 5.84 - ½(3 + 1.168) = 3.756
    assert Ms() == pytest.approx([10, 9, 7.6, 5.84, 3.756], rel=1e-12)
    # delay = 1: gradients 0, 0, 1, 2: 9 -> 8.1 -> 8.1 - ½(1 + 1.62) = 6.79
    #    -> 6.79 - ½(2 + 1.358) = 5.111
    assert Ms(delay=1) == pytest.approx([10, 9, 8.1, 6.79, 5.111], rel=1e-12)
    # radius 8: 9 -> 8; 8 - ½(1 + 1.6) = 6.7; 6.7 - ½(2 + 1.34) = 5.03; 5.03 - ½(3 + 1.006) = 3.027
    assert Ms(projection=ww.frobenius_ball(8)) == pytest.approx([10, 8, 6.7, 5.03, 3.027])
    # no episode ends: nothing moves
    assert Ms(every_episodes=1) == [10] * 5
    assert Ms(every_episodes="told") == [10] * 5
