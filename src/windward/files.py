"""Named arrays with a JSON header in one .npz file: written whole or not at all, never code."""

import json
import os
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

HEADER = "header"


def write(path: str | Path, arrays: dict[str, np.ndarray], header: dict[str, Any]) -> None:
    """Writes beside the file and renames, so that a stop leaves the old one."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb") as file:
            np.savez(file, **{HEADER: text}, **arrays)  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise ValueError(f"could not write {path}: {error}; what was there before stays") from error


def read(path: str | Path, kind: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """(arrays, header) of a file whose header says `kind`."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"there is no file {str(path)!r}")
    try:
        with path.open("rb") as handle, np.load(handle, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header = json.loads(arrays.pop(HEADER).tobytes())
    except (BadZipFile, OSError, KeyError, ValueError, EOFError) as error:
        raise ValueError(f"{str(path)!r} is damaged or not windward's: {error}") from error
    if header.get("kind") != kind:
        raise ValueError(f"{str(path)!r} holds {header.get('kind')!r}, not {kind!r}")
    return arrays, header


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
            raise ValueError(f"the file has no {name!r}: it was saved with other settings")
        array, wanted = arrays[name], np.asarray(leaf)
        if array.shape != wanted.shape or array.dtype != wanted.dtype:
            raise ValueError(
                f"{name!r} has shape {array.shape} and type {array.dtype} in the file, and "
                f"{wanted.shape} and {wanted.dtype} here: it was saved with other settings"
            )
        found.append(jnp.asarray(array))
    return jax.tree.unflatten(structure, found)
