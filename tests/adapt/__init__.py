"""Tests of windward.adapt."""
