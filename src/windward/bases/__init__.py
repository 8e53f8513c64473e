"""Base policies and their values: critics, vector values for PD2, features."""
