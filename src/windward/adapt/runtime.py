"""The act/observe loop of corrections that a diagnosis makes, for rows of environments.

Forms are thin layers over it: `begin`, then `act` and `observe` in turns. Bad input never reaches
the actuator: a row whose numbers are not finite executes its base action.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from windward.adapt import winds
from windward.adapt.corrections import Carry
from windward.adapt.episodes import blank_carry
from windward.adapt.faults import Faults, finite_rows
from windward.adapt.memory import Memory
from windward.adapt.reports import Report
from windward.adapt.supervisor import Belief, Parts, Supervisor

Timely = Callable[[Callable[[], Any]], tuple[bool, Any]]
"""runs what may be slow: (whether it was in time, what it gave)"""
States = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""observations, rows -> (states, which of them are known)"""


class Runtime:
    """Acts, observes and survives bad input; what acts is the supervisor's decision."""

    sees_reward = False
    """whether ŵ needs the reward"""

    def __init__(
        self,
        parts: Parts,
        rows: int,
        states: States,
        seed: int,
        learner: str,
        timely: Timely | None = None,
    ) -> None:
        self.parts, self.rows, self.learner = parts, rows, learner
        self._timely = timely
        self._states, self.seed = states, seed
        self._dtype = parts.dtype
        self._none = np.zeros(rows, dtype=bool)
        self.frozen = False
        self.reset()

    def reset(self) -> None:
        """Forgets what was learned."""
        self.memory = Memory(self.rows, self.parts.supervisor.kept)
        self.supervisor = Supervisor(self.parts, self.memory, self.seed)
        self.faults, self.clipped = Faults(), 0
        self.x: np.ndarray | None = None
        self.ended = self._none
        self._state: np.ndarray | None = None
        self._known = self._finite = self._none
        self._pending: tuple[Any, np.ndarray, np.ndarray, np.ndarray] | None = None
        self._totals, self._acted = np.zeros(self.rows), np.zeros(self.rows)
        self._lengths = np.zeros(self.rows)
        self._lost = self._none
        self._of = self.supervisor.belief
        self._follow(anew=True)

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

    def _blank(self, rows: np.ndarray) -> None:
        """Windows and winds of rows are emptied."""
        if not rows.any():
            return
        self._carry = Carry(*(np.where(_like(rows, each), 0.0, each) for each in self._carry))
        amount = self._winds.amount
        self._winds = winds.Memory(np.where(_like(rows, amount), np.nan, amount))
        if self._guess is not None:
            self._guess = np.where(rows[:, None], self._predicted(), self._guess)

    def _predicted(self) -> np.ndarray:
        """(rows, axes) of the coming step's wind."""
        wind = self._of.twin.wind
        assert wind is not None
        return winds.predict(wind, self._winds, self.parts.winds)

    @property
    def decisions(self) -> list[str]:
        """What was decided, in sentences."""
        return list(self.supervisor.decisions)

    def begin(self, x: np.ndarray, rows: np.ndarray | None = None) -> None:
        """Episodes begin in rows, all if None."""
        begun = ~self._none if rows is None else rows
        self._pending = None
        self.ended = self.ended & ~begun
        self._look(x)
        self._open(begun, x)
        for counts in (self._totals, self._acted, self._lengths):
            counts[begun] = 0.0
        self._blank(begun)

    def look(self, x: np.ndarray, rows: np.ndarray | None = None) -> None:
        """Takes up observations that do not follow from a step: where one ended the next begins."""
        begun, self.ended = self.ended, self._none
        self._look(x)
        self._open(begun, x)

    def _open(self, rows: np.ndarray, x: np.ndarray) -> None:
        """Begins to record episodes of rows."""
        assert self._state is not None
        for row in np.flatnonzero(rows):
            self.memory.cut(row)
            if self._known[row]:
                self.memory.begin(row, self._state[row].copy(), np.array(x[row]))

    def _look(self, x: np.ndarray) -> None:
        self.x = x
        good = np.asarray(finite_rows(x))
        self.faults.note("observation", np.logical_not(good))
        try:
            self._state, known = self._states(np.where(_like(good, x), x, 0))
        except Exception as error:  # a user's simulator may fail in any way
            self.faults.note("signal", ~self._none, repr(error))
            self._state = np.full((self.rows, self.parts.nominal.d_x), np.nan)
            known = self._none
        self._finite = good & np.isfinite(self._state).all(axis=1)
        self._known = known & self._finite

    def act(self, base: Any) -> Any:
        """The actions to execute; `base` itself, to the bit, where nothing is added."""
        rows = np.asarray(base)
        flat = rows.reshape(self.rows, -1).astype(np.float64)
        usable = np.asarray(np.isfinite(flat).all(axis=1))
        inside = self.parts.range.holds(flat)
        correction = self.supervisor.acts
        made = flat
        acting = self._none
        if correction is not None:
            # A clipped velocity hides the state from the record, but is near enough to act on.
            ready = usable & self._finite & ~self._lost
            made, acting = self._corrected(correction, flat, ready)
        action = base
        if not (usable.all() and inside.all()) or acting.any():
            lost = ~usable
            self.faults.note("action", lost)
            middle = (self.parts.range.low + self.parts.range.high) / 2
            made = np.where(lost[:, None], middle, made)
            made = np.clip(made, self.parts.range.low, self.parts.range.high)
            action = made.reshape(rows.shape).astype(self._dtype)
            bounds: np.ndarray = np.stack([self.parts.range.low, self.parts.range.high]).astype(
                self._dtype
            )
            low, high = bounds.reshape(2, *rows.shape[1:])
            action = np.clip(action, low, high)
            quiet = usable & inside & ~acting
            if quiet.any() and rows.dtype == action.dtype:
                action[quiet] = rows[quiet]
        change = np.where(acting[:, None], (made - flat) / self.parts.range.half, 0.0)
        cut = ~inside | (acting & self.parts.range.saturated(made))
        self.clipped += int(cut.sum())
        self._pending = (action, change, acting, cut)
        return action

    def _corrected(
        self, correction: Any, flat: np.ndarray, ready: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """(actions, rows that are corrected)."""
        assert self.x is not None
        assert self._state is not None
        if not ready.any():
            return flat, ready
        own = Carry(*(each[ready] for each in self._carry))
        guess = None if self._guess is None else self._guess[ready]
        twin = self._of.twin
        state, x = self._state[ready], self.x[ready]
        try:
            in_time, made_of = self._in_time(
                lambda: correction.act(twin, state, x, flat[ready], guess, own)
            )
        except Exception as error:  # a simulator or a policy may fail in any way
            self.faults.note("signal", ready, repr(error))
            return flat, self._none
        if not in_time:
            self.faults.note("late", ready)
            return flat, self._none
        u, after = made_of
        good = np.isfinite(u).all(axis=1)
        made = flat.copy()
        made[ready] = np.where(good[:, None], u, flat[ready])
        for mine, each in zip(self._carry, after, strict=True):
            mine[ready] = np.where(np.isfinite(each), each, 0.0)
        acting = ready.copy()
        acting[ready] = good
        return made, acting

    def observe(
        self,
        reward: np.ndarray | None,
        x_next: np.ndarray,
        terminated: np.ndarray | None = None,
        truncated: np.ndarray | None = None,
        *,
        phantom: np.ndarray | None = None,
        shown: np.ndarray | None = None,
    ) -> Report:
        """The step that followed `act`; arguments as in `Module.observe`."""
        assert self._pending is not None
        assert self._state is not None
        (action, change, acting, cut), self._pending = self._pending, None
        x, known, before = self._state, self._known, self.supervisor.news
        self.supervisor.news = False
        ended = self._none.copy()
        for flags in (terminated, truncated):
            if flags is not None:
                ended |= np.asarray(flags, dtype=bool)
        self._look(x_next)
        real = known & self._known & ~self._lost
        if phantom is not None:
            real = real & ~phantom
        bad_reward = self._none
        if reward is not None:
            bad_reward = ~np.isfinite(reward)
            self.faults.note("reward", bad_reward)
        u = np.asarray(action, dtype=np.float64).reshape(self.rows, -1)
        w_hat = self._record(x, u, action, real)
        valid = ~self._none if phantom is None else ~phantom
        if reward is not None:
            self._totals += np.where(valid & ~bad_reward, reward, 0.0)
        self._acted += acting & valid
        self._lengths += valid
        del before
        fault = valid & (~finite_rows(x_next) | bad_reward)
        self._end(ended & valid, reward is not None)
        for row in np.flatnonzero(~real & valid & ~ended):
            self.memory.cut(row)
            if self._known[row]:
                self.memory.resume(row, self._state[row].copy(), np.array(x_next[row]))
        if phantom is not None:  # a row that ended was reset with this step
            self._open(phantom & self.ended, x_next)
        self.ended = ended
        if shown is not None:
            self._look(shown)
            self._open(ended, shown)
        self._lost = fault & ~ended
        self._blank(ended | fault)
        self._follow()
        decided = self._none | self.supervisor.news
        return Report(
            w_hat, change, np.zeros_like(change), np.asarray(action), cut, fault,
            ~acting, decided,
        )  # fmt: skip

    def _record(self, x: np.ndarray, u: np.ndarray, action: Any, real: np.ndarray) -> np.ndarray:
        """Writes a step down, follows the wind, and tells the supervisor; gives ŵ (PD3)."""
        assert self._state is not None
        assert self.x is not None
        belief, x_next = self._of, self._state
        w_hat = np.zeros((self.rows, self.parts.nominal.d_x))
        index = np.flatnonzero(real)
        if not len(index):
            if self._guess is not None:  # the wind blew on, unseen
                self._winds = self._winds.after(np.full(self._guess.shape, np.nan))
                self._guess = self._predicted()
            return w_hat
        shaped = np.asarray(action)
        for row in index if not self.frozen else ():
            self.memory.add(row, np.array(shaped[row]), x_next[row].copy(), np.array(self.x[row]))
        try:
            in_time, deviation = self._in_time(
                lambda: self._compare(belief, x, u, x_next, index, w_hat)
            )
        except Exception as error:  # a simulator may fail in any way
            self.faults.note("signal", real, repr(error))
            return w_hat
        if not in_time:
            self.faults.note("late", real)
            return np.zeros_like(w_hat)
        if not self.frozen:
            self._tell(deviation)
        return w_hat

    def _in_time(self, work: Callable[[], Any]) -> tuple[bool, Any]:
        """(whether it was in time, what it gave); always in time where there is no deadline."""
        return (True, work()) if self._timely is None else self._timely(work)

    def _compare(
        self,
        belief: Belief,
        x: np.ndarray,
        u: np.ndarray,
        x_next: np.ndarray,
        index: np.ndarray,
        w_hat: np.ndarray,
    ) -> float:
        """Writes ŵ, takes up this step's wind; mean square deviation from the believed world."""
        twin, at, n = belief.twin, belief.situation, len(index)
        windy = self._guess is not None
        # Both worlds in one batch; with a wind the diagnosed one is asked for by its estimate.
        both = 1 if at is None or windy else 2
        flags = np.repeat(np.arange(both) > 0, n)
        made = twin.advance(flags, np.tile(x[index], (both, 1)), np.tile(u[index], (both, 1)))
        w_hat[index] = np.nan_to_num(twin.gap(x_next[index], made[:n]))
        if at is None:
            scale = self.supervisor.scale_of(x_next[index] - x[index])
            return float(np.square(w_hat[index] / scale).mean(axis=1).max())
        w = w_hat[:, at.window.coordinates] / at.window.size
        window = np.concatenate([w[:, None], self._carry.window[:, :-1]], axis=1)
        self._carry = self._carry._replace(window=window)
        if windy:
            left = self._follow_wind(belief, x, u, x_next, index)
        else:
            left = np.nan_to_num(twin.gap(x_next[index], made[n:])) * self._weight
        return float(np.square(left).mean(axis=1).max())

    def _follow_wind(
        self,
        belief: Belief,
        x: np.ndarray,
        u: np.ndarray,
        x_next: np.ndarray,
        index: np.ndarray,
    ) -> np.ndarray:
        """Estimates the wind of this step and predicts the next; what it leaves unexplained."""
        assert self._guess is not None
        s = self.parts.winds
        amount, left = winds.estimate(
            belief.twin, x[index], u[index], x_next[index], self._guess[index], self._weight, s
        )
        full = np.full((self.rows, belief.twin.axes), np.nan)
        full[index] = amount
        self._winds = self._winds.after(full)
        self._carry = self._carry._replace(wind=self._guess.copy())
        self._guess = self._predicted()
        return left

    def _tell(self, deviation: float) -> None:
        """Lets the supervisor decide."""
        try:
            self.supervisor.stepped(deviation)
        except Exception as error:  # policies and simulators of users may fail in any way
            self.faults.note("signal", ~self._none, repr(error))

    def _end(self, ended: np.ndarray, paid: bool) -> None:
        """Episodes of rows ended."""
        for row in np.flatnonzero(ended):
            share = float(self._acted[row] / max(self._lengths[row], 1))
            total = float(self._totals[row])
            self.memory.cut(row)
            for counts in (self._totals, self._acted, self._lengths):
                counts[row] = 0.0
            if paid and not self.frozen:
                try:
                    self.supervisor.ended(total, share)
                except Exception as error:
                    self.faults.note("signal", ended, repr(error))

    def freeze(self) -> None:
        """What acts goes on; nothing is learned."""
        self.frozen = True

    def unfreeze(self) -> None:
        """Learns again."""
        self.frozen = False
        for row in range(self.rows):
            self.memory.cut(row)
            if self._state is not None and self._known[row] and self.x is not None:
                self.memory.resume(row, self._state[row].copy(), np.array(self.x[row]))


def _like(rows: np.ndarray, array: np.ndarray) -> np.ndarray:
    return rows.reshape(len(rows), *([1] * (array.ndim - 1)))


def state_reader(simulators: Sequence[Any]) -> States:
    """Reads the true states of environments within reach."""

    def read(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.array([each.state() for each in simulators]), np.ones(len(simulators), dtype=bool)

    return read


def state_from_observations(simulator: Any) -> States:
    """States as observations tell them."""

    def read(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found: tuple[np.ndarray, np.ndarray] = simulator.states_seen(
            np.asarray(x, dtype=np.float64)
        )
        return found

    return read
