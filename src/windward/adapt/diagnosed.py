"""Acting in a diagnosed world: what was recorded, what is believed, and which correction acts."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from windward.adapt import resume, winds
from windward.adapt.corrections import Carry, Choices
from windward.adapt.episodes import blank_carry
from windward.adapt.faults import finite, some
from windward.adapt.learners.base import Arrays, Attempt, Heard, Outcome, Planned
from windward.adapt.memory import Memory
from windward.adapt.supervisor import Belief, Parts, Supervisor

Read = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""observations, rows -> (states, which of them are known)"""


class States:
    """Reads states: from observations, or from environments within reach, which may be reset."""

    def __init__(self, read: Read, of_env: bool) -> None:
        self.read, self.of_env = read, of_env


class Diagnosed:
    """A learner whose corrections come from simulations of the world as it was diagnosed."""

    sees_reward = False

    def __init__(
        self, name: str, parts: Parts, rows: int, states: States, seed: int, attempt: Attempt
    ) -> None:
        self.name, self.parts, self.rows, self.seed = name, parts, rows, seed
        self._states, self._attempt = states, attempt
        self._none = np.zeros(rows, dtype=bool)
        self.d_w, self._d_u = parts.nominal.d_x, parts.range.outputs
        self.frozen = False
        self.x: np.ndarray | None = None
        self._state: np.ndarray | None = None
        self._known = self._none
        self._fresh = False
        self._start()

    def _start(self) -> None:
        self.memory = Memory(self.rows, self.parts.supervisor.kept)
        self.supervisor = Supervisor(self.parts, self.memory, self.seed)
        self._totals, self._acted = np.zeros(self.rows), np.zeros(self.rows)
        self._lengths, self._acting = np.zeros(self.rows), self._none
        self._of = self.supervisor.belief
        self._follow(anew=True)

    def reset(self) -> None:
        """See Learner."""
        self._start()
        self._totals[:] = np.nan  # of episodes that are under way nobody knows the beginning
        self._resume(self._known)

    def _resume(self, rows: np.ndarray) -> None:
        """Begins to record rows amid their episodes."""
        if not some(rows):
            return
        for row in np.flatnonzero(rows):
            self.memory.cut(row)
            if self._state is not None and self._known[row] and self.x is not None:
                self.memory.resume(row, self._state[row].copy(), np.array(self.x[row]))

    def _follow(self, anew: bool = False) -> None:
        """Begins windows and winds anew when another world is believed."""
        belief = self.supervisor.belief
        if belief is self._of and not anew:
            return
        self._of = belief
        axes = belief.twin.axes
        window = None if belief.situation is None else belief.situation.window
        self._carry = blank_carry(self.rows, self.parts.range, belief.twin, window)
        self._winds = winds.blank(self.rows, axes, self.parts.winds)
        self._guess = self._predicted() if axes else None
        if belief.situation is not None:
            scale = belief.situation.scale
            self._weight = np.zeros(len(scale))
            index = belief.situation.window.coordinates
            self._weight[index] = 1.0 / scale[index]

    def _predicted(self, memory: winds.Memory | None = None) -> np.ndarray:
        """(rows, axes) of the coming step's wind, from its past."""
        wind = self._of.twin.wind
        assert wind is not None
        return winds.predict(wind, self._winds if memory is None else memory, self.parts.winds)

    @property
    def decisions(self) -> list[str]:
        """See Learner."""
        return self.supervisor.decisions

    @property
    def phase(self) -> str:
        """See Learner."""
        return str(self.supervisor.phase)

    def begin(self, rows: np.ndarray) -> None:
        """See Learner."""
        for counts in (self._totals, self._acted, self._lengths):
            counts[rows] = 0.0
        self.cut(rows)

    def cut(self, rows: np.ndarray) -> None:
        """See Learner: windows and winds of rows are emptied."""
        if not some(rows):
            return
        self._carry = Carry(*(np.where(_like(rows, each), 0.0, each) for each in self._carry))
        amount = self._winds.amount
        self._winds = winds.Memory(np.where(_like(rows, amount), np.nan, amount))
        if self._guess is not None:
            self._guess = np.where(rows[:, None], self._predicted(), self._guess)

    def look(self, x: np.ndarray, good: np.ndarray, begun: np.ndarray) -> None:
        """See Learner."""
        fresh, self._fresh = self._fresh and not begun.any(), False
        self.x = x
        if not fresh:
            self._read(x, good)
        assert self._state is not None
        if not some(begun):
            return
        for row in np.flatnonzero(begun):
            self.memory.cut(row)
            if self._known[row]:
                self.memory.begin(row, self._state[row].copy(), np.array(x[row]))

    def _read(self, x: np.ndarray, good: np.ndarray) -> None:
        """Takes up the states of observations."""
        seen = np.where(_like(good, x), x, 0)
        went_well, found = self._attempt(lambda: self._states.read(seen), ~self._none, False)
        self._state, known = (
            found if went_well else (np.full((self.rows, self.d_w), np.nan), self._none)
        )
        self._known = known & good & np.isfinite(self._state).all(axis=1)

    def plan(self, x: np.ndarray, base: np.ndarray, ready: np.ndarray) -> Planned | None:
        """See Learner."""
        self._acting = self._none
        correction = self.supervisor.acts
        assert self._state is not None
        # A clipped velocity hides the state from the record, but is near enough to act on.
        rows = ready & np.isfinite(self._state).all(axis=1)
        if correction is None or not rows.any():
            return None
        space = self.parts.range
        flat = base[:, None] + space.low if isinstance(space, Choices) else base
        own = Carry(*(each[rows] for each in self._carry))
        guess = None if self._guess is None else self._guess[rows]
        twin, state = self._of.twin, self._state[rows]
        went_well, found = self._attempt(
            lambda: correction.act(twin, state, x[rows], flat[rows], guess, own), rows
        )
        if not went_well:
            return None
        u, after = found
        good = np.isfinite(u).all(axis=1)
        for mine, each in zip(self._carry, after, strict=True):
            mine[rows] = np.where(np.isfinite(each), each, 0.0)
        change = np.zeros((self.rows, self._d_u))
        with np.errstate(invalid="ignore"):
            moved = space.coded(np.where(good[:, None], u, flat[rows])) - space.coded(flat[rows])
            change[rows] = moved
        self._acting = rows.copy()
        self._acting[rows] = good
        chosen = None
        if isinstance(space, Choices):
            chosen = base.copy()
            chosen[rows] = np.where(good, u[:, 0] - space.start, base[rows])
        none = np.zeros_like(change)
        return Planned(change, none, change.ravel().tolist(), self._acting, chosen)

    def acted(self, action: np.ndarray, ready: np.ndarray) -> bool:
        """See Learner."""
        self._acting = self._acting & ready
        return True

    def observe(self, outcome: Outcome) -> Heard:
        """See Learner."""
        happened, valid = outcome.happened, outcome.valid
        x, known = self._state, self._known
        self._fresh, self.x = True, happened.x_next
        self._read(happened.x_next, np.isfinite(_flat(happened.x_next)).all(axis=1))
        assert x is not None
        assert self._state is not None
        real = outcome.good & known & self._known
        if self._states.of_env:
            real = real & ~happened.gone
        u = np.asarray(happened.u, dtype=np.float64).reshape(self.rows, -1)
        w_hat, taught = self._record(x, u, happened.u, real)
        # A return with an unknown part tells nothing.
        with np.errstate(invalid="ignore"):
            self._totals += np.where(valid, happened.reward if outcome.paid else np.nan, 0.0)
        self._acted += self._acting & valid
        self._acting = self._none
        self._lengths += valid
        self._end(outcome.ended)
        self._resume(~real & valid & ~outcome.ended)
        self.cut(outcome.ended)
        self._follow()
        return Heard(w_hat, (outcome.good & ~real) | taught)

    def _record(
        self, x: np.ndarray, u: np.ndarray, action: np.ndarray, real: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Writes a step down, follows the wind, tells the supervisor; ŵ (PD3), and what taught."""
        assert self._state is not None
        assert self.x is not None
        belief, x_next = self._of, self._state
        w_hat = np.zeros((self.rows, self.d_w))
        index = np.flatnonzero(real)
        if not len(index):
            if self._guess is not None:  # the wind blew on, unseen
                self._winds = self._winds.after(np.full(self._guess.shape, np.nan))
                self._guess = self._predicted()
            return w_hat, real
        for row in index if not self.frozen else ():
            self.memory.add(row, np.array(action[row]), x_next[row].copy(), np.array(self.x[row]))
        went_well, found = self._attempt(lambda: self._compare(belief, x, u, x_next, index), real)
        if not went_well:
            return w_hat, self._none
        # Taken over here alone: late work must not write into what was emptied meanwhile.
        w_hat[index], deviation, self._carry, self._winds, self._guess = found
        if not self.frozen:
            self._attempt(lambda: self.supervisor.stepped(deviation), ~self._none, False)
        return w_hat, real

    def _compare(
        self, belief: Belief, x: np.ndarray, u: np.ndarray, x_next: np.ndarray, index: np.ndarray
    ) -> tuple[np.ndarray, float, Carry, winds.Memory, np.ndarray | None]:
        """ŵ of rows, the mean square gap to the believed world; what follows for rows, and wind."""
        carry, memory, guess = self._carry, self._winds, self._guess
        twin, at, n = belief.twin, belief.situation, len(index)
        windy = self._guess is not None
        # Both worlds in one batch; with a wind the diagnosed one is asked for by its estimate.
        both = 1 if at is None or windy else 2
        flags = np.repeat(np.arange(both) > 0, n)
        made = twin.advance(flags, np.tile(x[index], (both, 1)), np.tile(u[index], (both, 1)))
        w_hat = _cleaned(twin.gap(x_next[index], made[:n]))
        if at is None:
            scale = self.supervisor.scale_of(x_next[index] - x[index])
            return w_hat, _loudest(w_hat / scale), carry, memory, guess
        window = carry.window.copy()
        w = w_hat[:, at.window.coordinates] / at.window.size
        window[index] = np.concatenate([w[:, None], window[index, :-1]], axis=1)
        carry = carry._replace(window=window)
        if guess is not None:
            amount, left = self._blown(belief, guess, x, u, x_next, index)
            memory, carry = memory.after(amount), carry._replace(wind=guess.copy())
            guess = self._predicted(memory)
        else:
            left = _cleaned(twin.gap(x_next[index], made[n:])) * self._weight
        return w_hat, _loudest(left), carry, memory, guess

    def _blown(
        self,
        belief: Belief,
        guess: np.ndarray,
        x: np.ndarray,
        u: np.ndarray,
        x_next: np.ndarray,
        index: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The wind of this step in all rows, NaN where it is not known, and what it leaves."""
        amount, left = winds.estimate(
            belief.twin, x[index], u[index], x_next[index], guess[index], self._weight,
            self.parts.winds,
        )  # fmt: skip
        full = np.full((self.rows, belief.twin.axes), np.nan)
        full[index] = amount
        return full, left

    def _end(self, ended: np.ndarray) -> None:
        """Episodes of rows ended."""
        if not some(ended):
            return
        for row in np.flatnonzero(ended):
            share = float(self._acted[row] / max(self._lengths[row], 1))
            total = float(self._totals[row])
            self.memory.cut(row)
            for counts in (self._totals, self._acted, self._lengths):
                counts[row] = 0.0
            if np.isfinite(total) and not self.frozen:

                def told(total: float = total, share: float = share) -> None:
                    self.supervisor.ended(total, share)

                self._attempt(told, ended, False)

    def freeze(self, frozen: bool) -> None:
        """See Learner: what acts goes on."""
        thaws, self.frozen = self.frozen and not frozen, frozen
        if thaws:
            self._resume(~self._none)

    def identity(self) -> dict[str, Any]:
        """See Learner."""
        return {"d_x": self.d_w, "d_u": self._d_u, "seed": self.seed}

    def arrays(self) -> Arrays:
        """See Learner."""
        return resume.snapshot(self)[0]

    def header(self) -> dict[str, Any]:
        """See Learner."""
        return resume.snapshot(self)[1]

    def restore(self, arrays: Arrays, header: dict[str, Any]) -> None:
        """See Learner."""
        resume.restore(self, arrays, header)


def _cleaned(w: np.ndarray) -> np.ndarray:
    """Zeros for what is no number."""
    return w if finite(w) else np.nan_to_num(w)


def _loudest(r: np.ndarray) -> float:
    """The largest mean square of rows."""
    return max((np.einsum("ij,ij->i", r, r) / r.shape[1]).tolist())


def _like(rows: np.ndarray, array: np.ndarray) -> np.ndarray:
    return rows.reshape(len(rows), *([1] * (array.ndim - 1)))


def _flat(x: np.ndarray) -> np.ndarray:
    return np.asarray(x, dtype=np.float64).reshape(len(x), -1)


def state_reader(simulators: Sequence[Any]) -> States:
    """Reads the true states of environments within reach."""

    def read(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.array([each.state() for each in simulators]), np.ones(len(simulators), dtype=bool)

    return States(read, of_env=True)


def state_from_observations(simulator: Any) -> States:
    """States as observations tell them."""

    def read(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found: tuple[np.ndarray, np.ndarray] = simulator.states_seen(_flat(x).reshape(x.shape))
        return found

    return States(read, of_env=False)
