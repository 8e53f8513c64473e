"""Learners that see every step, a file for each; `config.py` has them by name."""
