"""The best fixed M of a case of `headroom`, found offline: a long search in the wind itself.

Candidates are played side by side in the disturbed environment, all of one generation from the same
starts in the same wind, on seeds that nothing else uses. What is searched for is a linear map from
the leading components of the window of ŵ, as the base policy meets them, at unit size; M is that
map written out. It begins at 0, or at an M that cancels ŵ if that is better. The search can be
stopped at any moment and goes on from its last generation. On linear systems M is solved for
(`exact`).
"""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

from windward import checks, files
from windward.adapt import cma
from windward.atomic import write_text
from windward.simulators.linear import LinearEnv
from windward.studies.evaluation.loading import load_model
from windward.studies.headroom import exact as headroom_exact
from windward.studies.headroom.cases import CASES, SEARCH_SEED
from windward.studies.headroom.worlds import World
from windward.studies.runs import results

H = 5
"""memory"""
COMPONENTS = 8
"""of the window, at most"""
LEAST = 1e-4
"""share of the window's square that a component must have"""
EPISODES = 8
"""that a candidate plays in a generation"""
JUDGES = 32
"""episodes that choose FINALISTS among the means of some generations"""
FINALISTS = 3
FINAL = 128
"""other episodes that choose among the finalists and 0"""
SURE = 2.0
"""standard errors by which one must be better than 0"""
EXACT = 256
"""episodes that a linear case is solved on"""
EVERY = 5
"""generations between such means"""
KIND = "windward.headroom.search"


def basis(windows: np.ndarray) -> np.ndarray:
    """(k, h, d_w): leading components of windows, each of which is of unit size over them."""
    _, h, d_w = windows.shape
    size = np.sqrt(np.square(windows[:, 0]).mean(axis=0))
    moves = size > 1e-6 * max(float(size.max()), 1e-12)
    scale = np.where(moves, 1.0 / np.where(moves, size, 1.0), 0.0)
    rows = (windows * scale).reshape(len(windows), -1)
    values, axes = np.linalg.eigh(rows.T @ rows / len(rows))
    order = np.argsort(values)[::-1][:COMPONENTS]
    order = order[values[order] > LEAST * values.sum()]
    found = (axes[:, order] / np.sqrt(values[order])).T.reshape(-1, h, d_w) * scale
    return np.asarray(found)


def search(
    name: str,
    generations: int,
    folder: Path,
    command: str,
    console: Console,
    max_steps: int | None = None,
    first_step: float = 0.3,
) -> dict[str, Any]:
    """The best fixed M of a case; written to NAME.json in `folder`, and read from there later.

    `first_step` is of corrections at unit ŵ, in actions scaled to [-1, 1].
    """
    path, partial = folder / f"{name}.json", folder / f"{name}.npz"
    checks.integer("generations", generations, 1)
    checks.positive("first_step", first_step)
    if path.exists():
        found: dict[str, Any] = json.loads(path.read_text())
        if found["max_steps"] != max_steps:
            raise ValueError(
                f"{path} was found with max_steps {found['max_steps']}, not {max_steps}: delete it "
                "to search again, or name another folder with --out"
            )
        return found
    folder.mkdir(parents=True, exist_ok=True)
    with closing(World(CASES[name], max_steps)) as played:
        seeds = np.arange(SEARCH_SEED, SEARCH_SEED + EPISODES)
        zero = np.zeros((1, H, played.d_u, played.d_w))
        if isinstance(played.env, LinearEnv):
            found = _exact(name, played, zero, command, max_steps)
            write_text(path, json.dumps(found) + "\n")
            return found
        components = basis(played.play(zero, seeds, keep=True).windows)

        def M_of(points: np.ndarray) -> np.ndarray:
            maps = points.reshape(-1, played.d_u, len(components))
            return np.einsum("nuk,khd->nhud", maps, components)

        known = played.cancelling(seeds, H)
        back = np.linalg.pinv(components.reshape(len(components), -1))
        flat = np.concatenate([zero, known]).swapaxes(1, 2).reshape(-1, H * played.d_w)
        points = (flat @ back).reshape(1 + len(known), -1)
        first = points[played.play(M_of(points), seeds).returns.mean(axis=1).argmax()]
        state, means, over = _go_on(partial, first, first_step)
        left = range(generations if over else int(state.generation), generations)
        for generation in track(left, f"best M, {name}", console=console):
            points = cma.ask(state, np.random.default_rng((0, generation)))
            fresh = seeds + EPISODES * (generation + 1)
            costs = -played.play(M_of(points), fresh).returns.mean(axis=1)
            state = cma.tell(state, points, costs)
            # Where the better half is as good as can be told apart, there is nothing left to find.
            over = not np.ptp(np.sort(costs)[: len(costs) // 2])
            if over or generation + 1 == generations or (generation + 1) % EVERY == 0:
                means = np.concatenate([means, state.mean[None]])
            header = {"kind": KIND, "case": name, "over": over}
            files.write(partial, {**state._asdict(), "means": means}, header)
            if over:
                break
        M, returns = _best(played, np.concatenate([M_of(means), known]))
    found = {
        "case": name, "command": command, "generations": int(state.generation),
        "episodes": int(state.generation) * cma.rates(len(state.mean)).points * EPISODES,
        "base_return": float(returns[0]), "best_return": float(returns[1]),
        "components": len(components), "max_steps": max_steps,
        "M": M.tolist(), "versions": results.versions(),
    }  # fmt: skip
    write_text(path, json.dumps(found) + "\n")
    partial.unlink(missing_ok=True)
    return found


def _exact(
    name: str, played: World, zero: np.ndarray, command: str, max_steps: int | None
) -> dict[str, Any]:
    """What needs no search, as `search` says it."""
    assert isinstance(played.env, LinearEnv)
    policy = load_model(CASES[name].policy, CASES[name].env)
    seeds = np.arange(SEARCH_SEED, SEARCH_SEED + EXACT)
    windows = played.play(zero, seeds, keep=True).windows.reshape(-1, EXACT, H, played.d_w)
    M = headroom_exact.best(played.env, policy.K, played.starts(seeds), windows)
    M, returns = _best(played, M[None])
    return {
        "case": name, "command": command, "generations": 0, "episodes": EXACT,
        "base_return": returns[0], "best_return": returns[1], "components": None,
        "max_steps": max_steps, "M": M.tolist(), "versions": results.versions(),
    }  # fmt: skip


def _best(played: World, candidates: np.ndarray) -> tuple[np.ndarray, tuple[float, float]]:
    """The best of candidates and 0, on episodes that proposed none; returns of 0 and of it.

    Some episodes choose the finalists, others among them: the best of many looks better than it is.
    """
    first = np.arange(2 * SEARCH_SEED, 2 * SEARCH_SEED + JUDGES)
    scores = np.array([played.play(M[None], first).returns.mean() for M in candidates])
    finalists = candidates[np.argsort(-scores, kind="stable")[:FINALISTS]]
    finalists = np.concatenate([np.zeros((1, *candidates.shape[1:])), finalists])
    others = np.arange(3 * SEARCH_SEED, 3 * SEARCH_SEED + FINAL)
    returns = np.array([played.play(M[None], others).returns[0] for M in finalists])
    gain = returns - returns[0]  # paired: the same starts and winds
    sure = gain.mean(axis=1) > SURE * gain.std(axis=1) / np.sqrt(FINAL)
    chosen = int(np.where(sure, gain.mean(axis=1), 0.0).argmax())
    return finalists[chosen], (float(returns[0].mean()), float(returns[chosen].mean()))


def _go_on(partial: Path, first: np.ndarray, step: float) -> tuple[cma.State, np.ndarray, bool]:
    """Where a search was left, or its start: state, means so far, and whether it was over."""
    if not partial.exists():
        return cma.start(first, step), np.zeros((0, len(first))), False
    arrays, header = files.read(partial, KIND)
    state = cma.State(*(arrays[name] for name in cma.State._fields))
    if state.mean.shape != first.shape:
        raise ValueError(f"{partial} is of another search: delete it")
    return state, arrays["means"], header["over"]
