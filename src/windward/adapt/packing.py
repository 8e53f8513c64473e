"""A tree of arrays as one vector: a compiled call pays for every array that it is handed."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


class Packing:
    """The way between trees of one structure and a vector of floats, made from shapes alone.

    Integers travel as floats of the same bits, or of the same value where floats are wider.

    >>> packing = Packing({"a": jnp.zeros((2, 2)), "n": jnp.zeros((), jnp.int32)}, jnp.float32)
    >>> packed = packing.pack({"a": jnp.ones((2, 2)), "n": jnp.asarray(3, jnp.int32)})
    >>> packed.shape
    (5,)
    >>> int(packing.unpack(packed)["n"])
    3
    """

    def __init__(self, like: Any, dtype: Any) -> None:
        leaves, self._structure = jax.tree.flatten(like)
        self.dtype = np.dtype(dtype)
        self._leaves = [(leaf.shape, np.dtype(leaf.dtype)) for leaf in leaves]
        for _, own in self._leaves:
            if own != self.dtype and (own.kind not in "iu" or own.itemsize > self.dtype.itemsize):
                raise ValueError(f"an array of {own} cannot travel as {self.dtype}")

    def pack(self, tree: Any) -> jax.Array:
        """One vector, leaves in their order."""
        flat = [jnp.ravel(self._as_float(leaf)) for leaf in jax.tree.leaves(tree)]
        return jnp.concatenate(flat)

    def _as_float(self, leaf: Any) -> jax.Array:
        array = jnp.asarray(leaf)
        if array.dtype == self.dtype:
            return array
        if array.dtype.itemsize == self.dtype.itemsize:
            return jax.lax.bitcast_convert_type(array, self.dtype)
        return array.astype(self.dtype)

    def unpack(self, vector: Any) -> Any:
        """The tree, of arrays of NumPy where the vector is one."""
        at, leaves = 0, []
        for shape, own in self._leaves:
            size = int(np.prod(shape))
            leaves.append(self._as_own(vector[at : at + size].reshape(shape), own))
            at += size
        return jax.tree.unflatten(self._structure, leaves)

    def _as_own(self, part: Any, own: np.dtype[Any]) -> Any:
        if own == self.dtype:
            return part
        if own.itemsize != self.dtype.itemsize:
            return part.astype(own)
        if isinstance(part, np.ndarray):
            return part.view(own)
        return jax.lax.bitcast_convert_type(part, own)
