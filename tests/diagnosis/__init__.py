"""Tests of windward.diagnosis."""
