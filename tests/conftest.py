"""What all tests share: compiled programs on disk between runs, and float64 on request."""

from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

ROOT = Path(__file__).resolve().parents[1]


def pytest_configure(config: pytest.Config) -> None:
    jax.config.update("jax_compilation_cache_dir", str(ROOT / ".jax_cache"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
    # JAX compiles anew when another worker is still writing the entry it reads, and says so.
    config.addinivalue_line(
        "filterwarnings", "ignore:Error (reading|writing) persistent compilation cache:UserWarning"
    )


@pytest.fixture
def x64() -> Iterator[None]:
    """Float64 for the whole test: numbers worked by hand are then exact."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def cheap_compiling() -> Iterator[None]:
    """Leaves out LLVM's expensive passes: for many small programs compiling is all of the time."""
    before = jax.config.values["jax_disable_most_optimizations"]
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
