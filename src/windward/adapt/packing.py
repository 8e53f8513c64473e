"""A tree of arrays as one vector for each type: a compiled call pays for every leaf."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


class Packing:
    """The way between trees of one structure and a few vectors, made from shapes alone.

    >>> packing = Packing({"a": jnp.zeros((2, 2)), "n": jnp.zeros((), jnp.int32)})
    >>> packed = packing.pack({"a": jnp.ones((2, 2)), "n": jnp.asarray(3)})
    >>> [each.shape for each in packed]
    [(4,), (1,)]
    >>> int(packing.unpack(packed)["n"])
    3
    """

    def __init__(self, like: Any) -> None:
        leaves, self._structure = jax.tree.flatten(like)
        self._shapes = [leaf.shape for leaf in leaves]
        self._types = [np.dtype(leaf.dtype) for leaf in leaves]
        self.dtypes = list(dict.fromkeys(self._types))
        """the type of each vector"""

    def pack(self, tree: Any) -> list[jax.Array]:
        """One vector for each type, leaves in their order."""
        leaves = jax.tree.leaves(tree)
        return [
            jnp.concatenate(
                [
                    jnp.ravel(leaf).astype(dtype)
                    for leaf, own in zip(leaves, self._types, strict=True)
                    if own == dtype
                ]
            )
            for dtype in self.dtypes
        ]

    def unpack(self, vectors: Sequence[Any]) -> Any:
        """The tree; of views where the vectors are NumPy's."""
        at = dict.fromkeys(self.dtypes, 0)
        leaves = []
        for shape, dtype in zip(self._shapes, self._types, strict=True):
            size = int(np.prod(shape))
            vector = vectors[self.dtypes.index(dtype)]
            leaves.append(vector[at[dtype] : at[dtype] + size].reshape(shape))
            at[dtype] += size
        return jax.tree.unflatten(self._structure, leaves)
