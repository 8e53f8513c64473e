"""Tests of windward.simulators."""
