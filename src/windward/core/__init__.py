"""The algorithm as pure JAX functions on arrays: no Gym, no files, no clock."""
