"""What the tests of studies share."""

import pytest
from rich.console import Console


@pytest.fixture
def console() -> Console:
    return Console(quiet=True)
