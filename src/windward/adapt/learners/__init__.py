"""Learners of corrections, by name."""
