"""Disturbances from text: what a text means, and what is said of one that means nothing."""

from dataclasses import fields
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from windward import envs

NAMES = {
    "uniform": envs.Uniform,
    "gaussian": envs.Gaussian,
    "sine": envs.Sinusoid,
    "square": envs.SquareWave,
    "ou": envs.OrnsteinUhlenbeck,
    "walk": envs.RandomWalk,
    "step": envs.Step,
    "impulse": envs.Impulse,
    "bias": envs.Bias,
    "fgsm": envs.GradientSign,
}


def pendulum() -> gym.Env:
    return gym.make("Pendulum-v1", disable_env_checker=True)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_alone_has_the_defaults(name: str) -> None:
    (spec,) = envs.parse(name)
    assert spec == envs.Spec(NAMES[name](), None, None)


@pytest.mark.parametrize(
    ("text", "disturbance"),
    [
        ("sine:amp=0.2,period=60", envs.Sinusoid(0.2, 60.0)),
        ("sine:amplitude=0.2,per=7,ph=1.5", envs.Sinusoid(0.2, 7.0, 1.5)),
        ("sine:amp=0.1/0/-0.2,period=5/6/7", envs.Sinusoid((0.1, 0.0, -0.2), (5.0, 6.0, 7.0))),
        ("sine:phase=random", envs.Sinusoid(phase="random")),
        ("square:duty=0.2", envs.SquareWave(duty=0.2)),
        ("uniform:bound=1e-2", envs.Uniform(0.01)),
        ("uniform: bound = 0.3 ", envs.Uniform(0.3)),
        ("ou:scale=0.1,tau=5,mean=1/2", envs.OrnsteinUhlenbeck(0.1, 5.0, (1.0, 2.0))),
        ("walk:scale=0.1,bound=2", envs.RandomWalk(0.1, 2.0)),
        ("step:size=2,at=7", envs.Step(2.0, 7)),
        ("impulse:at=3,width=2,every=9", envs.Impulse(at=3, width=2, every=9)),
        ("bias:value=-1", envs.Bias(-1.0)),
        ("fgsm:eps=0.5", envs.GradientSign(0.5)),
        ("recorded:sequence=1/2/3,after=zero", envs.Recorded([1.0, 2.0, 3.0], after="zero")),
    ],
)
def test_text_means_the_object(text: str, disturbance: Any) -> None:
    (spec,) = envs.parse(text)
    assert spec.disturbance == disturbance
    assert (spec.channel, spec.when) == (None, None)


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("start=5", envs.Interval(5)),
        ("stop=5", envs.Interval(0, 5)),
        ("start=2,stop=5", envs.Interval(2, 5)),
        ("probability=0.3", envs.Probability(0.3)),
        ("from_episode=4", envs.FromEpisode(4)),
        ("grow=50", envs.Growing(steps=50)),
        ("grow_episodes=6", envs.Growing(episodes=6)),
    ],
)
def test_text_says_when(text: str, when: Any) -> None:
    (spec,) = envs.parse(f"uniform:bound=0.2,{text},channel=qvel")
    assert spec.channel == "qvel"
    assert spec.disturbance == envs.Uniform(0.2)
    assert list(spec.when) == [when]


def test_several_schedules_in_a_text_are_all_kept() -> None:
    (spec,) = envs.parse("uniform:start=5,probability=0.5,grow=10,from_episode=1")
    kinds = {type(each) for each in spec.when}
    assert kinds == {envs.Interval, envs.Probability, envs.Growing, envs.FromEpisode}


@pytest.mark.parametrize("plus", [" + ", "+"])
def test_several_disturbances_are_joined_by_a_plus(plus: str) -> None:
    specs = envs.parse(f"sine:amp=0.2,channel=qvel{plus}uniform:bound=0.1,channel=action")
    assert [spec.disturbance for spec in specs] == [envs.Sinusoid(0.2), envs.Uniform(0.1)]
    assert [spec.channel for spec in specs] == ["qvel", "action"]


def test_a_plus_in_a_number_is_part_of_the_number() -> None:
    assert envs.parse("bias:value=1e+2")[0].disturbance == envs.Bias(100.0)


def test_a_channel_with_a_body_is_a_value() -> None:
    assert envs.parse("bias:channel=force:torso")[0].channel == "force:torso"


@pytest.mark.parametrize("name", NAMES)
def test_every_field_can_be_set_by_its_name(name: str) -> None:
    for field in fields(NAMES[name]):
        if field.name in ("value", "gradient") and name == "fgsm":
            continue
        number = 1 if field.name != "every" else 0
        (spec,) = envs.parse(f"{name}:{field.name}={number}")
        assert getattr(spec.disturbance, field.name) == number


def test_unknown_names_list_all_disturbances_and_their_fields() -> None:
    with pytest.raises(ValueError, match="'breeze'") as caught:
        envs.parse("breeze:amp=1")
    message = str(caught.value)
    assert "breeze:amp=1" in message
    for name, kind in {**NAMES, "recorded": envs.Recorded}.items():
        shown = message.split(f"  {name}:")[1].splitlines()[0]
        for field in fields(kind):
            assert field.name in shown or (name == "fgsm" and field.name in ("value", "gradient"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no disturbance ''"),
        ("Sine", "no disturbance 'Sine'"),
        ("sine:amp", "KEY=VALUE.*'amp'.*'sine:amp'"),
        ("sine:height=1", "'height' is not among amplitude, period, phase, channel, start, stop"),
        ("sine:p=1", "'p' could be any of period, phase, probability"),
        ("uniform:=1", "''"),
        ("uniform:bound=big", "bound must be a number.*'big'.*uniform:bound=big"),
        ("uniform:bound=", "bound must be a number.*''"),
        ("uniform:bound=0.1//0.2", "bound must be a number.*'0.1//0.2'"),
        ("uniform:bound=1,b=2", "bound is set twice"),
        ("uniform:bound=-1", r"bound must be at least 0; got -1\.0"),
        ("uniform:bound=nan", "bound must be finite"),
        ("step:at=1.5", r"at must be a whole number; got '1\.5'"),
        ("uniform:start=soon", "start must be a whole number; got 'soon'"),
        ("uniform:start=5,stop=4", "stop.*4"),
        ("uniform:probability=2", r"probability must lie in \[0, 1\]; got 2\.0"),
        ("uniform:probability=0.1/0.2", "probability"),
        ("uniform:grow=0", "grow.*at least 1; got 0"),
        ("sine:phase=later", "phase.*later"),
        ("ou:tau=1/2", "tau"),
        ("recorded", "recorded needs sequence"),
        ("recorded:sequence=gone.npy", "no file 'gone.npy'"),
        ("recorded:sequence=1/2,after=stop", "'error', 'repeat', 'zero'.*'stop'"),
        ("fgsm:value=1", "'value' is not among epsilon"),
    ],
)
def test_a_text_without_meaning_says_what_is_wrong_with_it(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        envs.parse(text)


def test_a_parsed_text_disturbs_as_the_text_does() -> None:
    text = "ou:scale=0.2,channel=qvel + uniform:bound=0.1,channel=action,start=2"
    told = []
    for what in (text, envs.parse(text), text.split(" + ")):
        env = envs.Disturbed(pendulum(), what)
        env.reset(seed=0)
        infos = [env.step(np.zeros(1))[4]["disturbance"] for _ in range(5)]
        told.append([(info["qvel"].tobytes(), info["action"].tobytes()) for info in infos])
    assert told[0] == told[1] == told[2]


def test_one_parsed_disturbance_can_be_given_on_its_own() -> None:
    (spec,) = envs.parse("bias:value=0.25,channel=qvel")
    env = envs.Disturbed(pendulum(), spec)
    env.reset(seed=0)
    np.testing.assert_array_equal(env.step(np.zeros(1))[4]["disturbance"]["qvel"], [0.25])


def test_arguments_fill_in_what_a_text_leaves_open() -> None:
    text = "bias:value=1 + bias:value=2,channel=reward + bias:value=4,start=0"
    env = envs.Disturbed(pendulum(), text, "action", when=envs.Interval(1))
    env.reset(seed=0)
    told = [env.step(np.zeros(1))[4]["disturbance"] for _ in range(2)]
    assert [float(each["action"][0]) for each in told] == [4.0, 5.0]
    assert [float(each["reward"][0]) for each in told] == [0.0, 2.0]
