"""Proposers of corrections in the diagnosed world, a file for each."""
