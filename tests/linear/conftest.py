"""What the tests of linear systems share: two small systems."""

import numpy as np
import pytest

import windward as ww


@pytest.fixture(scope="session")
def double_integrator() -> ww.linear.System:
    return ww.linear.System(A=[[1.0, 1.0], [0.0, 1.0]], B=[[0.0], [1.0]])


@pytest.fixture(scope="session")
def plant() -> ww.linear.System:
    """Three states, two controls, an eigenvalue outside the unit circle."""
    A = np.array([[1.1, 0.3, 0.0], [0.0, 0.7, -0.2], [0.1, 0.0, 0.5]])
    B = np.array([[1.0, 0.2], [0.0, 1.0], [0.3, 0.0]])
    return ww.linear.System(A, B)


@pytest.fixture(scope="session")
def plant_K() -> np.ndarray:
    """A gain that stabilises `plant`, and not the optimal one."""
    return np.array([[0.7, 0.2, 0.1], [-0.1, 0.3, 0.0]])
