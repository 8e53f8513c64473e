"""Named arrays with a JSON header in one .npz file: written whole or not at all, never code."""

import json
from collections.abc import Sequence
from fnmatch import fnmatchcase
from math import prod
from pathlib import Path
from typing import Any
from zipfile import ZipFile, ZipInfo, is_zipfile

import numpy as np
from numpy.lib import format as npy

from windward.atomic import replacing

HEADER = "header"
LIMIT = 2**30
"""bytes that the arrays of a file may take by default"""
KINDS = "biufcSU"
"""kinds of NumPy types that are read; the others may hold objects"""


class Headerless(ValueError):
    """Arrays without windward's header: somebody else's .npz file."""


class Oversized(ValueError):
    """A file that would take too much memory."""


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


def read(
    path: str | Path, *kinds: str, names: Sequence[str] | None = None, limit: int = LIMIT
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Reads (arrays, header) of a file; runs no code, and unpacks nothing that is too large.

    Args:
        path: of the file.
        kinds: what the header may say that it is.
        names: patterns, such as "trace/*", of the arrays to read; others are not unpacked. All if
            left out.
        limit: bytes that the arrays may take unpacked. A file that is larger itself may take as
            much as it has.

    Raises:
        ValueError: with the file, what is wrong with it, and what to do.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"there is no file {str(path)!r}")
    try:
        if not is_zipfile(path):
            raise ValueError("it is no .npz file, a zip archive of arrays, or not all of one")
        with ZipFile(path) as file:
            members = {each.filename.removesuffix(".npy"): each for each in file.infolist()}
            if HEADER not in members:
                held = ", ".join(sorted(members)[:8]) or "nothing"
                raise Headerless(f"it has no header; it holds {held}")
            wanted = {
                name: member
                for name, member in members.items()
                if name == HEADER or names is None or any(fnmatchcase(name, p) for p in names)
            }
            _check_size(wanted.values(), max(limit, path.stat().st_size))
            arrays = {name: _array(file, member) for name, member in wanted.items()}
        header = json.loads(arrays.pop(HEADER).tobytes())
        if not isinstance(header, dict):
            raise ValueError("its header is no JSON object")
    except Oversized as error:
        raise Oversized(f"{str(path)!r} is too large: {error}") from error
    # Damaged bytes make zipfile, NumPy and JSON raise nearly anything, MemoryError included.
    except Exception as error:
        kind = Headerless if isinstance(error, Headerless) else ValueError
        said = str(error) if type(error) in (ValueError, Headerless) else repr(error)
        raise kind(
            f"{str(path)!r} is damaged or not windward's: {said}. Take another copy, or write it "
            "again"
        ) from error
    if header.get("kind") not in kinds:
        raise ValueError(f"{str(path)!r} holds {header.get('kind')!r}, not {kinds[0]!r}")
    return Named(path, arrays), Named(path, header)


def _check_size(members: Any, most: int) -> None:
    """Refuses what would take too much memory unpacked."""
    size = sum(each.file_size for each in members)
    if size > most:
        raise Oversized(
            f"unpacked it takes {size / 1e9:.3g} GB, and the limit is {most / 1e9:.3g} GB (where "
            "that is meant, pass a larger limit=)"
        )


def _array(file: ZipFile, member: ZipInfo) -> np.ndarray:
    """One array; its own header must fit its size before memory is taken for it."""
    name = member.filename
    with file.open(member) as handle:
        version = npy.read_magic(handle)
        if version not in ((1, 0), (2, 0)):
            raise ValueError(f"{name!r} is an array of format {version}")
        first = version == (1, 0)
        header = npy.read_array_header_1_0 if first else npy.read_array_header_2_0
        shape, _, dtype = header(handle)
        # An object array would be a pickle, and a pickle is code.
        if dtype.kind not in KINDS or dtype.hasobject:
            raise ValueError(f"{name!r} is an array of {dtype}, not of numbers or text")
        if any(each < 0 for each in shape):
            raise ValueError(f"{name!r} says that it has shape {shape}")
        count = prod(int(each) for each in shape)
        size, there = count * dtype.itemsize, member.file_size - handle.tell()
        if size != there or (size == 0 and count):
            raise ValueError(
                f"{name!r} says that it has shape {shape}, {size:,} bytes, and has {there:,}"
            )
    with file.open(member) as handle:
        return np.asarray(npy.read_array(handle, allow_pickle=False))


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
