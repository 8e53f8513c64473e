"""What all tests share: quick compiling, programs on disk between runs, and float64 on request."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

# A test runs its program a few times at most, so compiling is most of the time of the suite:
# nothing is optimised, and XLA's older code generator on one thread takes a third of the newer's
# time. Processes that tests start inherit this. JAX reads it when first imported, XLA at its first
# program.
QUICK = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {QUICK}".strip()
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
os.environ["JAX_TRACEBACK_IN_LOCATIONS_LIMIT"] = "0"  # no program needs to know where it is from
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(Path(__file__).resolve().parents[1] / ".jax_cache")
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.2"

# Tracing makes many small objects, which a collector at its usual pace goes through all the time
# together with everything that was imported.
gc.set_threshold(50_000, 20, 20)


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    # JAX compiles anew when another worker is still writing the entry it reads, and says so.
    config.addinivalue_line(
        "filterwarnings", "ignore:Error (reading|writing) persistent compilation cache:UserWarning"
    )


@pytest.fixture
def x64() -> Iterator[None]:
    """Float64 for the whole test: numbers worked by hand are then exact."""
    import jax

    with jax.enable_x64(True):
        yield
