"""DisturbedVector: each row is what Disturbed gives, in every vector environment and mode."""

import pickle
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from windward import envs, simulators

BOUNDARY = (
    ["ou:scale=0.2", "gaussian:scale=0.05", "sine:amp=0.5,period=7,phase=random"],
    ["action", "observation", "reward"],
)
INSIDE = (["ou:scale=0.2", "gaussian:scale=0.05", "uniform"], ["qvel", "observation", "mass"])
MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP]


class Opaque(VectorEnv):
    """A vector environment whose parts are out of reach, as in other processes, but cheap."""

    def __init__(self, inside: SyncVectorEnv) -> None:
        self.inside = inside
        self.num_envs, self.metadata = inside.num_envs, inside.metadata
        self.single_observation_space = inside.single_observation_space
        self.single_action_space = inside.single_action_space
        self.observation_space, self.action_space = inside.observation_space, inside.action_space

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return self.inside.reset(seed=seed, options=options)

    def step(self, actions: Any) -> Any:
        return self.inside.step(actions)

    def call(self, name: str, *args: Any) -> Any:
        return self.inside.call(name, *args)

    def close_extras(self, **kwargs: Any) -> None:
        self.inside.close()


def pendulum(length: int = 5) -> gym.Env:
    return gym.make("Pendulum-v1", max_episode_steps=length, disable_env_checker=True)


def windy_pendulum(length: int = 5) -> gym.Env:
    return envs.Disturbed(pendulum(length), "ou:scale=0.2", "qvel")


def vector(mode: AutoresetMode = AutoresetMode.NEXT_STEP, make: Any = pendulum) -> SyncVectorEnv:
    """Two rows whose episodes differ in length."""
    return SyncVectorEnv([partial(make, 3), partial(make, 5)], autoreset_mode=mode)


def opaque(mode: AutoresetMode = AutoresetMode.NEXT_STEP, make: Any = pendulum) -> Opaque:
    return Opaque(vector(mode, make))


def actions(steps: int, rows: int = 2) -> np.ndarray:
    return np.random.default_rng(8).uniform(-2, 2, (steps, rows, 1)).astype(np.float32)


FORMS = [(vector, BOUNDARY), (vector, INSIDE), (opaque, BOUNDARY)]
FORM_NAMES = ["sync, from outside", "sync, from inside", "opaque"]


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
@pytest.mark.parametrize(("form", "what"), FORMS, ids=FORM_NAMES)
def test_row_i_is_disturbed_with_the_seed_plus_i(form: Any, what: Any, mode: Any) -> None:
    whole = envs.DisturbedVector(form(mode), *what)
    ones = [envs.Disturbed(pendulum(length), *what) for length in (3, 5)]
    seen, _ = whole.reset(seed=20)
    expected = [env.reset(seed=20 + i)[0] for i, env in enumerate(ones)]
    np.testing.assert_array_equal(seen, expected)
    over = [False, False]
    for chosen in actions(17):
        seen, rewards, terminated, truncated, info = whole.step(chosen)
        for i, env in enumerate(ones):
            if over[i] and mode == AutoresetMode.NEXT_STEP:
                observation, _ = env.reset()
                reward, ended = 0.0, False
            else:
                observation, reward, _, ended, own = env.step(chosen[i])
                if not ended or mode == AutoresetMode.NEXT_STEP:
                    for name, w in own["disturbance"].items():
                        np.testing.assert_array_equal(info["disturbance"][name][i], w)
                        assert info["disturbance"][f"_{name}"][i]
            if ended and mode == AutoresetMode.SAME_STEP:
                np.testing.assert_array_equal(info["final_obs"][i], observation)
                observation, _ = env.reset()
            over[i] = ended
            np.testing.assert_array_equal(seen[i], observation)
            assert rewards[i] == reward
            assert (terminated[i], truncated[i]) == (False, ended)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_what_is_told_does_not_depend_on_the_kind_of_vector(mode: AutoresetMode) -> None:
    """At an autoreset too; `final_info` has the ended episode's share."""
    one, two = (envs.DisturbedVector(form(mode), *BOUNDARY) for form in (vector, opaque))
    one.reset(seed=1)
    two.reset(seed=1)
    for chosen in actions(7):
        ours, theirs = one.step(chosen)[4], two.step(chosen)[4]
        for info in (ours, theirs):
            assert info["disturbance"]["_observation"].all()
        for name in BOUNDARY[1]:
            there = ours["disturbance"].get(f"_{name}", np.zeros(2, bool))
            np.testing.assert_array_equal(there, theirs["disturbance"][f"_{name}"])
            np.testing.assert_array_equal(
                ours["disturbance"].get(name, np.zeros((2, 1)))[there],
                theirs["disturbance"][name][there],
            )
        if "final_info" in ours:
            np.testing.assert_array_equal(
                ours["final_info"]["disturbance"]["action"],
                theirs["final_info"]["disturbance"]["action"],
            )


@pytest.mark.parametrize(("form", "what"), FORMS, ids=FORM_NAMES)
def test_policies_do_not_move_the_disturbances_of_a_vector(form: Any, what: Any) -> None:
    told = []
    for factor in (1.0, -0.3):
        env = envs.DisturbedVector(form(), *what)
        env.reset(seed=3)
        infos = [env.step(factor * chosen)[4]["disturbance"] for chosen in actions(12)]
        told.append([info[name].tobytes() for info in infos for name in what[1] if name in info])
    assert told[0] == told[1]


@pytest.mark.parametrize("form", [vector, opaque])
def test_a_list_of_seeds_and_a_seed_of_the_constructor(form: Any) -> None:
    listed = envs.DisturbedVector(form(), *BOUNDARY)
    listed.reset(seed=[7, 30])
    w = listed.step(actions(1)[0])[4]["disturbance"]["action"]
    for i, seed in enumerate((7, 30)):
        one = envs.Disturbed(pendulum(), *BOUNDARY)
        one.reset(seed=seed)
        np.testing.assert_array_equal(w[i], one.step(actions(1)[0, i])[4]["disturbance"]["action"])
    built = envs.DisturbedVector(form(), *BOUNDARY, seed=7)
    built.reset()
    again = built.step(actions(1)[0])[4]["disturbance"]["action"]
    np.testing.assert_array_equal(again[0], w[0])
    assert not np.array_equal(again[1], w[1])


@pytest.mark.parametrize("form", [vector, opaque])
def test_rows_are_disturbed_independently(form: Any) -> None:
    env = envs.DisturbedVector(form(), envs.Gaussian(0.1), "observation")
    env.reset(seed=0)
    rows = [env.step(chosen)[4]["disturbance"]["observation"] for chosen in actions(300)]
    first, second = np.array(rows).transpose(1, 0, 2).reshape(2, -1)
    assert abs(np.corrcoef(first, second)[0, 1]) < 5 / np.sqrt(first.size)


@pytest.mark.parametrize("form", [vector, opaque])
def test_only_the_rows_of_a_reset_mask_begin_again(form: Any) -> None:
    env = envs.DisturbedVector(form(AutoresetMode.DISABLED), *BOUNDARY)
    twin = envs.DisturbedVector(form(AutoresetMode.DISABLED), *BOUNDARY)
    for each in (env, twin):
        each.reset(seed=2)
    chosen = actions(2)
    before = env.step(chosen[0])[0]
    twin.step(chosen[0])
    seen, _ = env.reset(options={"reset_mask": np.array([True, False])})
    np.testing.assert_array_equal(seen[1], before[1])
    assert not np.array_equal(seen[0], before[0])
    ours, theirs = env.step(chosen[1]), twin.step(chosen[1])
    np.testing.assert_array_equal(ours[0][1], theirs[0][1])
    assert not np.array_equal(ours[0][0], theirs[0][0])


@pytest.mark.parametrize("form", [vector, opaque])
def test_two_disturbed_vectors_draw_apart_and_both_tell(form: Any) -> None:
    inner = envs.DisturbedVector(form(), envs.Gaussian(1.0), "action")
    env = envs.DisturbedVector(inner, envs.Gaussian(1.0), "reward")
    env.reset(seed=0)
    told = env.step(actions(1)[0])[4]["disturbance"]
    assert {"action", "reward"} <= set(told)
    assert not np.array_equal(told["action"], told["reward"])


@pytest.mark.parametrize("inside", ["Disturbed", "DisturbedVector"])
@pytest.mark.parametrize("form", [vector, opaque])
def test_what_is_disturbed_already_does_not_get_the_same_noise_again(
    form: Any, inside: str
) -> None:
    noise = envs.Gaussian(1.0)
    if inside == "Disturbed":
        once = form(make=lambda length: envs.Disturbed(pendulum(length), noise, "reward"))
    else:
        once = envs.DisturbedVector(form(), noise, "reward")
    twice = envs.DisturbedVector(once, noise, "reward")
    single, bare = envs.DisturbedVector(form(), noise, "reward"), vector()
    for each in (twice, single, bare):
        each.reset(seed=0)
    chosen = actions(1)[0]
    share = single.step(chosen)[4]["disturbance"]["reward"][:, 0]
    added = twice.step(chosen)[1] - bare.step(chosen)[1]
    assert not np.allclose(added, 2 * share)


def test_noise_around_disturbed_rows_does_not_depend_on_the_kind_of_vector() -> None:
    rewards = []
    for form in (vector, opaque):
        env = envs.DisturbedVector(form(make=windy_pendulum), envs.Gaussian(1.0), "reward")
        env.reset(seed=0)
        rewards.append(np.array([env.step(chosen)[1] for chosen in actions(8)]))
    np.testing.assert_array_equal(*rewards)


@pytest.mark.parametrize("form", [vector, opaque])
def test_what_environments_inside_tell_stays(form: Any) -> None:
    env = envs.DisturbedVector(form(make=windy_pendulum), envs.Bias(0.1), "reward")
    env.reset(seed=0)
    told = env.step(actions(1)[0])[4]["disturbance"]
    assert {"qvel", "reward"} <= set(told)
    assert told["qvel"].any(axis=1).all()


@pytest.mark.parametrize("form", [vector, opaque])
def test_actions_of_whole_numbers_are_disturbed_all_the_same(form: Any) -> None:
    env = envs.DisturbedVector(form(), envs.Bias(0.4), "action")
    twin = vector()
    env.reset(seed=0)
    twin.reset(seed=0)
    ours, theirs = env.step(np.zeros((2, 1), int)), twin.step(np.full((2, 1), 0.4))
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-6)


@pytest.mark.filterwarnings("ignore:.*precision lowered")
def test_a_disturbed_action_enters_outside_the_wrappers_inside_it_in_every_vector() -> None:
    """Half of a rescaled action is one newton metre of Pendulum's two."""
    seen = []
    for form in (vector, opaque):
        rescaled = gym.wrappers.vector.RescaleAction(form(), -1.0, 1.0)
        env = envs.DisturbedVector(rescaled, envs.Bias(0.5), "action")
        env.reset(seed=0)
        seen.append(env.step(np.zeros((2, 1), np.float32))[0])
    twin = vector()
    twin.reset(seed=0)
    expected = twin.step(np.ones((2, 1), np.float32))[0]
    np.testing.assert_allclose(seen, [expected, expected], rtol=1e-6)


def test_vector_environments_of_gymnasium_with_their_own_code_are_disturbed() -> None:
    make = partial(gym.make_vec, "CartPole-v1", 2, vectorization_mode="vector_entry_point")
    env, twin = envs.DisturbedVector(make(), envs.Bias(0.01), "observation"), make()
    np.testing.assert_allclose(env.reset(seed=0)[0], twin.reset(seed=0)[0] + 0.01, rtol=1e-5)
    chosen = np.array([0, 1])
    np.testing.assert_allclose(env.step(chosen)[0], twin.step(chosen)[0] + 0.01, rtol=1e-5)


def test_a_sync_vector_pickles() -> None:
    env = envs.DisturbedVector(vector(), *INSIDE)
    copy = pickle.loads(pickle.dumps(env))
    for each in (env, copy):
        each.reset(seed=4)
    for chosen in actions(7):
        np.testing.assert_array_equal(env.step(chosen)[0], copy.step(chosen)[0])


def test_closing_restores_the_parameters_of_all_rows() -> None:
    env = envs.DisturbedVector(vector(), envs.Bias(0.5), "mass")
    bases = [each.unwrapped for each in env.unwrapped.envs]
    env.reset(seed=0)
    env.step(actions(1)[0])
    assert [base.m for base in bases] == [1.5, 1.5]
    env.close()
    assert [base.m for base in bases] == [1.0, 1.0]


# What it refuses


@pytest.mark.parametrize("channel", ["qvel", "force:torso", "nonsense"])
def test_channels_out_of_reach_are_named_with_what_there_is(channel: str) -> None:
    with pytest.raises(
        simulators.Unsupported, match=f"(?s)has action, observation, reward.*{channel}.*make_vec"
    ):
        envs.DisturbedVector(opaque(), envs.Bias(0.1), channel)


def test_a_vector_without_a_channel_is_told_to_give_one() -> None:
    for form in (vector, opaque):
        with pytest.raises(ValueError, match=r"channel=.*action, observation, reward"):
            envs.DisturbedVector(form(), envs.Bias(0.1))


@pytest.mark.parametrize("form", [vector, opaque])
def test_an_amplitude_of_the_wrong_shape_is_named(form: Any) -> None:
    with pytest.raises(ValueError, match=r"value must have shape \(3,\).*got \(2,\)"):
        envs.DisturbedVector(form(), envs.Bias((0.1, 0.2)), "observation")


@pytest.mark.parametrize("form", [vector, opaque])
def test_a_step_of_a_vector_before_reset_is_refused(form: Any) -> None:
    env = envs.DisturbedVector(form(), envs.Bias(0.1), "observation")
    with pytest.raises(gym.error.ResetNeeded):
        env.step(actions(1)[0])


def test_a_single_environment_is_sent_to_disturbed() -> None:
    with pytest.raises(ValueError, match="use Disturbed"):
        envs.DisturbedVector(pendulum(), envs.Bias(0.1), "observation")  # type: ignore[arg-type]


# Other processes


def test_processes_of_their_own_give_the_same_bytes() -> None:
    """Disturbed inside workers, and DisturbedVector around them."""

    def run(env: Any) -> list[bytes]:
        env = envs.DisturbedVector(env, "ou:scale=0.3", "reward")
        out = [env.reset(seed=12)[0].tobytes()]
        for chosen in actions(8):
            observation, reward, _, truncated, _ = env.step(chosen)
            out += [observation.tobytes(), reward.tobytes(), truncated.tobytes()]
        env.close()
        return out

    makers = [partial(windy_pendulum, 3), partial(windy_pendulum, 5)]
    apart = run(AsyncVectorEnv(makers, context="forkserver"))
    assert apart == run(Opaque(SyncVectorEnv(makers)))
