"""Laws that cancel ŵ, or learn on their own, one for each row: the slot of peers in the runtime."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from windward.adapt.learners.base import Arrays, Attempt, Heard, Outcome, Planned
from windward.adapt.sources import Happened, Source
from windward.core import signals


class Law(Protocol):
    """What is added to the base actions of one environment, in actions scaled to [-1, 1]."""

    def plan(self, x: np.ndarray, base: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(correction, noise), (d_u,) each; called with one row each before a step."""

    def observe(self, step: Happened, w_hat: np.ndarray) -> None:
        """What followed on the last plan, if that was usable; ŵ is empty without a signal."""

    def begin(self) -> None:
        """The next step does not follow on the last one."""

    def forget(self) -> None:
        """All is as when it was made."""

    def arrays(self) -> Arrays:
        """Its state, as arrays."""
        ...

    def header(self) -> dict[str, Any]:
        """The rest of it, as JSON can hold it."""
        ...

    def restore(self, arrays: Arrays, header: dict[str, Any]) -> None:
        """Goes on from both."""


class Laws:
    """A law for each row of environments, fed by one source of ŵ, or by none."""

    decisions: list[str]
    phase = "active"
    sees_reward = False

    def __init__(
        self, name: str, laws: Sequence[Law], source: Source | None, d_u: int, attempt: Attempt
    ) -> None:
        self.name, self.laws, self.source = name, list(laws), source
        self.rows, self._d_u, self._attempt = len(self.laws), d_u, attempt
        self.d_w = 0 if source is None else int(source.d_w or 0)
        self._source_at_first = None if source is None else source.memory()
        self.decisions, self.frozen = [], False
        self._acting = np.zeros(self.rows, dtype=bool)

    def begin(self, rows: np.ndarray) -> None:
        """See Learner."""
        for i in np.flatnonzero(rows):
            self.laws[i].begin()

    def look(self, x: np.ndarray, good: np.ndarray, begun: np.ndarray) -> None:
        """See Learner."""
        self.begin(begun)

    def plan(self, x: np.ndarray, base: np.ndarray, ready: np.ndarray) -> Planned | None:
        """See Learner."""
        both = np.zeros((2, self.rows, self._d_u))
        acting = ready.copy()
        for i in np.flatnonzero(ready):
            law, own = self.laws[i], np.arange(self.rows) == i

            def one(law: Law = law, row: Any = slice(i, i + 1)) -> Any:
                return law.plan(x[row], base[row])

            acting[i], made = self._attempt(one, own)
            if acting[i]:
                both[:, i] = made
        if self.frozen:
            both[1] = 0.0
        self._acting = acting
        if not acting.any():
            return None
        return Planned(both[0], both[1], both.sum(axis=0).ravel().tolist(), acting)

    def acted(self, action: np.ndarray, ready: np.ndarray) -> bool:
        """See Learner."""
        if self.source is None or not self.source.needs_steps:
            return True
        source = self.source
        return self._attempt(lambda: source.before(action), ready)[0]

    def observe(self, outcome: Outcome) -> Heard:
        """See Learner."""
        happened, good = outcome.happened, outcome.good & self._acting
        w_hat, taught = np.zeros((self.rows, self.d_w)), good.copy()
        if self.source is not None and good.any():
            source = self.source
            went_well, found = self._attempt(
                lambda: signal_rows(source, happened.mended(good)), good
            )
            taught &= went_well
            if went_well:
                w_hat[good] = found[good]
        # Larger numbers than a float32 holds are as good as none.
        finite = (np.abs(w_hat) < np.finfo(np.float32).max).all(axis=1)
        why = "its numbers were not finite" if (taught & ~finite).any() else ""
        taught &= finite
        w_hat[~finite] = 0.0
        for i in np.flatnonzero(taught):
            step = happened.row(int(i))
            law, own = self.laws[i], np.arange(self.rows) == i

            def one(law: Law = law, step: Happened = step, w: np.ndarray = w_hat[i]) -> None:
                with np.errstate(over="ignore", invalid="ignore"):
                    law.observe(step, w)

            taught[i] = self._attempt(one, own)[0]
        self.begin(outcome.ended)
        return Heard(w_hat, taught, why)

    def cut(self, rows: np.ndarray) -> None:
        """See Learner: a law goes on from what it knew before a fault."""

    def freeze(self, frozen: bool) -> None:
        """See Learner: what was learned goes on acting, without noise."""
        self.frozen = frozen

    def reset(self) -> None:
        """See Learner."""
        for law in self.laws:
            law.forget()
        if self.source is not None:
            self.source.remember(self._source_at_first)

    def identity(self) -> dict[str, Any]:
        """See Learner."""
        signal = None if self.source is None else self.source.name
        # A state of another kind of law, or of its map, has other arrays.
        shapes = {name: list(np.shape(each)) for name, each in self.laws[0].arrays().items()}
        kept = {name: each for name, each in shapes.items() if name.startswith("map/")}
        return {"d_w": self.d_w, "signal": signal, "map": kept}

    def arrays(self) -> Arrays:
        """See Learner."""
        return {
            f"laws/{i}/{name}": np.asarray(each)
            for i, law in enumerate(self.laws)
            for name, each in law.arrays().items()
        }

    def header(self) -> dict[str, Any]:
        """See Learner."""
        source = None if self.source is None else self.source.memory()
        return {"laws": [law.header() for law in self.laws], "source": source}

    def restore(self, arrays: Arrays, header: dict[str, Any]) -> None:
        """See Learner."""
        parts = [
            {
                name.removeprefix(f"laws/{i}/"): each
                for name, each in arrays.items()
                if name.startswith(f"laws/{i}/")
            }
            for i in range(self.rows)
        ]
        for law, own, rest in zip(self.laws, parts, header["laws"], strict=True):
            law.restore(own, rest)
        if self.source is not None:
            self.source.remember(header["source"])


def signal_rows(source: Source, step: Happened) -> np.ndarray:
    """ŵ of a step, (B, d_w): as the source gives it, or by PD2's formula."""
    aux: dict[str, Any] = dict(source.after(step))
    found = aux.get(signals.W)
    if found is None:
        ahead = np.asarray(aux[signals.V_VEC_NEXT]) * ~step.terminated[:, None]
        found = signals.pd2(aux[signals.C_VEC], ahead, aux[signals.Q_VEC], source.gamma)
    return np.asarray(found, dtype=np.float64).reshape(len(step.x), -1)


def refuse_score(source: Source) -> Source:
    """Refuses PD1, a gradient that is found by exploring."""
    if source.signal.uses_score or source.d_w is None:
        raise ValueError(
            f"signal {source.name!r} is a gradient in the action, estimated from exploration: use "
            "pd3 (a simulator), pd2 (vector values) or a function"
        )
    return source
