"""Named arrays with a JSON header in one .npz file: written whole or not at all, never code."""

import json
import zlib
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from windward.atomic import replacing

HEADER = "header"


class Named(dict[str, Any]):
    """What a file holds by name; a name that it has not is an error for users, not for Python."""

    def __init__(self, path: Path, content: dict[str, Any]) -> None:
        super().__init__(content)
        self._path = path

    def __missing__(self, name: str) -> Any:
        raise ValueError(f"{str(self._path)!r} has no {name!r}: it was written by another version")


def write(path: str | Path, arrays: dict[str, np.ndarray], header: dict[str, Any]) -> None:
    """Writes beside the file and renames, so that a stop leaves the old one."""
    path = Path(path)
    text = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            np.savez(file, **{HEADER: text}, **arrays)  # type: ignore[arg-type]
    except OSError as error:
        raise ValueError(f"could not write {path}: {error}; what was there before stays") from error


def read(path: str | Path, *kinds: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """(arrays, header) of a file whose header says one of `kinds`."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"there is no file {str(path)!r}")
    try:
        with path.open("rb") as handle, np.load(handle, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header = json.loads(arrays.pop(HEADER).tobytes())
        kind = header.get("kind")
    # All that zipfile, NumPy and JSON were seen to raise on damaged bytes.
    except (BadZipFile, OSError, KeyError, ValueError, EOFError, AttributeError, TypeError,
            RuntimeError, zlib.error) as error:  # fmt: skip
        raise ValueError(f"{str(path)!r} is damaged or not windward's: {error}") from error
    if kind not in kinds:
        raise ValueError(f"{str(path)!r} holds {kind!r}, not {kinds[0]!r}")
    return Named(path, arrays), Named(path, header)


def flatten(prefix: str, tree: Any) -> dict[str, np.ndarray]:
    """The leaves of a tree of arrays by numbered names."""
    import jax

    leaves = jax.tree.leaves(tree)
    return {f"{prefix}/{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}


def unflatten(prefix: str, like: Any, arrays: dict[str, np.ndarray]) -> Any:
    """The tree that `flatten` took apart; checks names, shapes and dtypes against `like`."""
    import jax
    import jax.numpy as jnp

    leaves, structure = jax.tree.flatten(like)
    found = []
    for i, leaf in enumerate(leaves):
        name = f"{prefix}/{i}"
        if name not in arrays:
            raise ValueError(
                f"the file has no {name!r}: it was saved with other settings or by another version"
            )
        array, wanted = arrays[name], np.asarray(leaf)
        if array.shape != wanted.shape or array.dtype != wanted.dtype:
            raise ValueError(
                f"{name!r} has shape {array.shape} and type {array.dtype} in the file, and "
                f"{wanted.shape} and {wanted.dtype} here: it was saved with other settings or by "
                "another version"
            )
        found.append(jnp.asarray(array))
    return jax.tree.unflatten(structure, found)
