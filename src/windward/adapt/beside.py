"""Sources of ŵ with something beside it: what an estimator of the gradient looks at as well."""

from typing import Any

import numpy as np

from windward.adapt.sources import PD1, Aux, Happened, Source, scalar_of
from windward.core import signals


class _Beside:
    """A source that hands on what another one gives."""

    def __init__(self, source: Source) -> None:
        self.source, self.gamma = source, source.gamma
        self.name, self.d_w, self.signal = source.name, source.d_w, source.signal
        self.needs_steps, self.sees_reward = source.needs_steps, source.sees_reward

    def before(self, u: np.ndarray) -> None:
        """As the source does."""
        self.source.before(u)

    def memory(self) -> Any:
        """As the source does."""
        return self.source.memory()

    def remember(self, memory: Any) -> None:
        """As the source does."""
        self.source.remember(memory)


class Valued(_Beside):
    """A source of ŵ with V(x_t) and V(x_{t+1}) of the base policy beside it, for advantages."""

    def __init__(self, source: Source, values: Any) -> None:
        super().__init__(source)
        self.critic = scalar_of(values)
        self.gamma = float(self.critic.gamma)
        if source.name in ("pd1", "pd2") and source.gamma != self.gamma:
            raise ValueError(
                f"the values behind {source.name} have a discount of {source.gamma}, and those of "
                f"the advantages {self.gamma}: give values of the same"
            )
        if isinstance(source, PD1):  # ŵ is made of V as well, and of its own
            self.critic = source.critic

    def after(self, step: Happened) -> Aux:
        """What the source gives, and values of costs."""
        both = np.concatenate([step.x, step.x_next])
        now, ahead = np.split(-np.asarray(self.critic.V(both), dtype=float), 2)
        return {**self.source.after(step), signals.V_NOW: now, signals.V_NEXT: ahead}


class Observing(_Beside):
    """A source of ŵ with the observations of both ends of a step beside it, for `response`.

    They stand for states, whatever the coordinates of ŵ are.
    """

    def after(self, step: Happened) -> Aux:
        """What the source gives, and observations as flat rows."""
        now, ahead = (
            np.asarray(each, dtype=float).reshape(len(each), -1) for each in (step.x, step.x_next)
        )
        return {**self.source.after(step), signals.X_NOW: now, signals.X_NEXT: ahead}
