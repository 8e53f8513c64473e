"""The package: names load when first used, and environments never load JAX."""

import subprocess
import sys

import pytest

import windward as ww


def test_every_public_name_is_there() -> None:
    for name in ww.__all__:
        assert getattr(ww, name) is not None
    assert set(ww.__all__) <= set(dir(ww))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = ww.no_such_name


def test_environments_do_not_load_jax() -> None:
    code = """
import sys, gymnasium as gym, windward
env = gym.make("windward/NoisyHopper-v0")
env.reset(seed=0)
sim = windward.simulator(env)
sim.predict(env.action_space.sample())
env.step(env.action_space.sample())
gym.make("windward/FGSMPendulum-v0")
sys.exit("jax" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
