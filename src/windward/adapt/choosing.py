"""Which of some M to take, by their costs in the same replays."""

import numpy as np

BASE, HALF = 1, 2  # places of candidates beside M itself, which is 0
LIKELY = 0.5  # standard errors by which one M must be better than another


def choose(costs: np.ndarray, margin: float, spread: float) -> int:
    """The best candidate by its costs, (judges, candidates): 0 is M and stays, 1 the base policy.

    A candidate is sure if it is better than the base policy by a margin, and by so many standard
    errors or nowhere worse: what saves one episode of many and costs the others nothing has a large
    spread, and is sure all the same. Of the sure ones that also seem better than M the best is
    taken. Where there is none, the base policy is, as soon as it seems better than M: in doubt it
    is the base policy that acts.
    """
    size = np.abs(costs[:, BASE]).mean()

    def sure(gain: np.ndarray, spread: float) -> np.ndarray:
        mean, error = gain.mean(axis=0), gain.std(axis=0) / np.sqrt(len(gain))
        return (mean > margin * size) & ((mean > spread * error) | (gain >= 0).all(axis=0))

    base = costs[:, BASE : BASE + 1]
    good = sure(base - costs, spread)
    good &= sure(costs[:, :1] - costs, LIKELY)  # and than M: of that less has to be known
    if good.any():
        return int(np.where(good, costs.mean(axis=0), np.inf).argmin())
    loss = costs[:, 0] - base[:, 0]
    return BASE if loss.mean() > LIKELY * loss.std() / np.sqrt(len(loss)) else 0
