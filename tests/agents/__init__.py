"""Tests of windward.agents."""
