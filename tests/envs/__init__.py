"""Tests of windward.envs."""
