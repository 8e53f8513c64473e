"""How replays look for M."""

from dataclasses import dataclass

from windward import checks


@dataclass(frozen=True)
class Search:
    """How to look for a better M; sizes are of corrections, [-1, 1] or logits, for ŵ of size 1."""

    every: int = 50
    """steps between updates, as long as they find something"""
    at_most: int = 600
    """to this many steps the time between updates is doubled when they find nothing"""
    per_episode: int = 6
    """updates for an episode that ends by itself, the rest at its end; fewer where replays are
    longer, and none where nothing was found for long"""
    horizon: int = 120
    """steps of a replay"""
    after_end: int = 300
    """the same, at least, once an episode has ended by itself: what puts an end off must be told
    from what avoids it"""
    gamma: float = 0.995
    """of a replay of so many steps or less; over all of a longer one it is the same"""
    starts: int = 18
    """states that a generation is replayed from"""
    judges: int = 20
    """states that candidates are judged by"""
    step: float = 0.15
    """of the search at first, and when it begins anew"""
    components: int = 20
    """of recent ŵ that M is made of at most: the leading ones of its covariance"""
    margin: float = 0.01
    """how much better than the base policy M must be, of the cost"""
    spread: float = 1.5
    """and of the standard error of the difference"""
    kept: int = 8
    """beginnings of episodes that replays start from, and half as many later pieces"""

    def __post_init__(self) -> None:
        for name in ("every", "at_most", "horizon", "after_end", "starts", "judges", "kept"):
            checks.integer(name, getattr(self, name), 1)
        checks.integer("components", self.components, 1)
        checks.integer("per_episode", self.per_episode, 0)
        checks.positive("step", self.step)
