"""Division of rows into blocks of consecutive steps: to fit from, and to judge by."""

from typing import Any

import numpy as np

from windward.diagnosis.residuals import Rows


def shifted(rows: Rows, delay: int) -> Rows:
    """Rows with the actions of `delay` steps before; those without such a step are left out."""
    if not delay:
        return rows
    index = np.arange(delay, rows.size)
    index = index[rows.run[index] == rows.run[index - delay]]
    return rows.take(index)._replace(u=rows.u[index - delay])


def split(rows: Rows, size: int, block: int) -> tuple[Rows, Rows]:
    """(to fit from, to judge by): blocks of consecutive steps in turns, spread evenly."""
    n = rows.size
    block = max(6, min(block, n // 8))
    starts = np.flatnonzero(np.r_[True, rows.run[1:] != rows.run[:-1]])
    ends = np.r_[starts[1:], n]
    pieces = [
        np.arange(a, min(a + block, end))
        for start, end in zip(starts, ends, strict=True)
        for a in range(start, end, block)
    ]
    if len(pieces) < 2:
        return rows, rows
    parts = []
    for turn in (0, 1):
        own = pieces[turn::2]
        count = min(len(own), max(2, -(-size // block)))
        picked = [own[i] for i in np.unique(np.linspace(0, len(own) - 1, count).astype(int))]
        index = np.concatenate(picked)
        run = np.repeat(np.arange(len(picked)), [len(each) for each in picked])
        parts.append(rows.take(index)._replace(run=run))
    return parts[0], parts[1]


def joined(a: Rows, b: Rows) -> Rows:
    """Both, with runs of their own."""
    if a is b:
        return a
    b = b._replace(run=b.run + a.run.max() + 1)
    parts: Any = (None if x is None else np.concatenate([x, y]) for x, y in zip(a, b, strict=True))
    return Rows(*parts)
