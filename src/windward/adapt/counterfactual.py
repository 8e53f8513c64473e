"""Learning M from replays: no exploration, and a change only when replays say that it pays.

Every so many steps a generation of candidates, drawn by covariance matrix adaptation, is replayed
from some recorded states; then M, 0, M/2, the best of the generation, the search's new mean and two
that cancel ŵ are replayed from states that are drawn anew. The best of those that beat 0, the base
policy, beyond doubt, by a margin and by its spread over the states or nowhere worse, and that seem
better than M, takes M's place. So a candidate is not judged by the replays that chose it, and the
base policy is always among them. Where the simulator is found to be wrong, returns judge as well.
"""

from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from windward import checks
from windward.adapt.amended import Amended
from windward.adapt.cancelling import cancelling
from windward.adapt.choosing import BASE, HALF, choose
from windward.adapt.doubt import Doubt
from windward.adapt.drawing import Drawing
from windward.adapt.flaw import flaw
from windward.adapt.pace import LONGEST, Pace
from windward.adapt.predictable import LEAST
from windward.adapt.record import Record, Start
from windward.adapt.replay import replay
from windward.adapt.replayed import Replayed
from windward.adapt.search import Search
from windward.simulators import Simulator
from windward.simulators.learned import LearnedSimulator

LONG = 3  # replays that an episode must be longer than for them to be spread over all of it
SURER = 2  # times as many judges as usual that are asked as well before M begins to act
ENOUGH = 200  # predictions of ŵ that tell nothing, with which an M that acts gives way
LOOK = 1000  # steps of an episode after which the simulator's flaws are looked for anyway


class Counterfactual:
    """Records the steps of one environment and keeps M, `update` by `update`."""

    def __init__(
        self,
        simulator: Simulator | LearnedSimulator,
        policy: Replayed,
        h: int,
        seed: int,
        search: Search | None = None,
        refusal: str = "",
        doubting: bool = True,
    ) -> None:
        if search is not None and not isinstance(search, Search):
            raise ValueError(f"search must be a windward.adapt.Search; got {search!r}")
        self.simulator, self.policy, self.search = simulator, policy, search or Search()
        self.refusal = refusal
        """why nothing is replayed, if nothing is"""
        self._shape = (h, policy.d_u, simulator.d_x)
        self.doubting = doubting
        """whether returns are asked where the simulator is wrong"""
        self._seed = seed
        self.reset()

    def reset(self) -> None:
        """As when it was made."""
        self.record = self._blank()
        self.amended = Amended(self.simulator, self.policy.d_u, self.policy.coded)
        """what replays run in"""
        self.M = np.zeros(self._shape)
        """for ŵ in its sizes"""
        self.drawing = self._undrawn()
        self._rng = np.random.default_rng((self._seed, 7))
        self.pace = self._even()
        self.episode = self._unlooked = 0
        self.decisions: list[str] = [self.refusal] if self.refusal else []
        """what was decided about M, in sentences"""
        self._x: np.ndarray | None = None
        self._u: np.ndarray | None = None
        self._phi = np.zeros(0)
        self.doubt = Doubt(self.say)
        """asks returns, if the simulator is wrong"""

    @property
    def M_for_w_hat(self) -> np.ndarray:
        """M for ŵ as it is."""
        return np.asarray(self.M * self.record.per_size)

    def _blank(self) -> Record:
        """A record without steps."""
        h, _, d_w = self._shape
        pushes = self.simulator.pushes if isinstance(self.simulator, LearnedSimulator) else None
        return Record(h, d_w, d_w + self.policy.d_u, self.search.kept, pushes)

    def _undrawn(self) -> Drawing:
        """A search that has not begun."""
        return Drawing(self._shape, self.search.step, self.search.components)

    def _even(self) -> Pace:
        """A pace of which nothing is known; what is learned goes astray in long replays."""
        usual = max(self.search.horizon, self.search.after_end)
        learned = isinstance(self.simulator, LearnedSimulator)
        return Pace(self.search, usual if learned else LONGEST)

    def left(self) -> None:
        """An episode begins, wherever the last one was."""
        self.record.cut()
        self.pace.left()
        self.doubt.left()

    def torn(self) -> None:
        """Steps of this episode were not seen."""
        self.record.cut()
        self.pace.torn = True
        self.doubt.torn()

    def before(self, x: Any, u: np.ndarray) -> None:
        """Called before the environment is stepped, with observation and action, rows."""
        self._x, self._u = self._state(x), u

    def _state(self, x: Any) -> np.ndarray | None:
        """Where the environment is; None if that cannot be told."""
        if isinstance(self.simulator, LearnedSimulator):  # its states are what is observed
            return self.simulator.state_of(x)[0] if np.isfinite(x).all() else None
        return self.simulator.state()

    def amend(self, w_hat: np.ndarray, x_next: Any) -> np.ndarray:
        """ŵ of the step, rows, without what is known to be wrong with the simulator."""
        now = self._state(x_next)
        if self._x is None or now is None:
            return w_hat
        phi = self.amended.phi(self._x[None], self._u, now - w_hat)
        self._phi = phi[0]
        Theta = self.amended.Theta
        if not Theta.any():
            return w_hat
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused later
            return np.asarray(w_hat - phi @ Theta.T)

    def after(
        self, w_hat: np.ndarray, reward: float, usable: bool, terminated: bool, ended: bool
    ) -> bool:
        """A step is over; whether M may have changed, or whose turn it is."""
        if self.refusal:
            return False
        rested = self.doubt.resting
        self.doubt.see(reward, acts=bool(self.M.any()) and not rested)
        self.episode += ended
        if ended and self.doubt.end():
            self._anew(np.ones(self._shape[2], dtype=bool))
        changed = self._learn(w_hat, usable, terminated, ended)
        if ended and self.doubting and self.amended.Theta.any():
            self.doubt.wake()
        return changed or self.doubt.resting != rested

    def _learn(self, w_hat: np.ndarray, usable: bool, terminated: bool, ended: bool) -> bool:
        """Records a step and looks for a better M when it is time to; whether M may be another."""
        recorded = usable and self._x is not None
        if recorded:
            assert self._x is not None
            self.record.add(self._x, w_hat.astype(np.float64), self._phi)
            self._unlooked += 1
        due = self.pace.step(recorded, terminated)
        if self.doubt.away:
            due = 0
        if ended:
            self.pace.left()
        if ended or not usable:
            self.record.cut()
        look = (ended or self._unlooked >= LOOK) and len(self.record) > 0
        if not (look or due) or not len(self.record):
            return False
        # Small matrix products are slower on many threads than on one.
        with threadpool_limits(1, user_api="blas"):
            mended = look and self._mend()
            if mended and not self.doubt.away:
                due = max(due, 1)
            found = [self.update() for _ in range(due)]
        if due:
            self.pace.updated(due, found=any(found), idle=not self.M.any(), ended=ended)
        return mended or any(found)

    def _mend(self) -> bool:
        """Looks for what is wrong with the simulator; whether ŵ is another one for that.

        Where all of ŵ is an error of the simulator's, and no wind, it is all that M can act on, and
        the simulator stays as it is: so where it was right and the world has changed.
        """
        self._unlooked = 0
        Theta, (w_hat, phi) = self.amended.Theta, self.record.pairs()
        raw = [each + step @ Theta.T for each, step in zip(w_hat, phi, strict=True)]
        found = flaw(raw, phi, self._shape[0], np.asarray(Theta.any(axis=1)))
        if found is None:
            return False
        if not found.wind.any():
            found = found._replace(Theta=0 * Theta, wind=~found.wind)
        now, new = found.Theta, found.Theta.any(axis=1) != Theta.any(axis=1)
        if not now.any() and not new.any():
            return False
        if new.any():
            right = "what a step tells of its error is put right" if now.any() else "it stays so"
            self.say(f"the simulator is wrong: {right}")
            if self.M[..., new].any():
                self.doubt.renounced()
            self._anew(new)  # M answered to another ŵ there
        other = bool(new.any() or (found.wind != self.record.wind).any())
        self.amended.Theta = now
        self.record.amend(now - Theta)
        self.record.look(found.wind, found.a)
        return other

    def _anew(self, of: np.ndarray) -> None:
        """M does not act on such numbers of ŵ any more, and the search begins anew."""
        self.M = np.where(of, 0.0, self.M)
        self.drawing.begun = self.pace.scale = self.pace.vain = 0

    def _starts(self, count: int, *, judging: bool = False) -> list[Start]:
        """Where replays begin, each with a wind and a luck of its own.

        Where nothing but time ends episodes, and that late, replays are spread over them, and
        those that judge are longer: a gait takes some steps to change.
        """
        lasts = self.pace.lasts
        spread = lasts if lasts > LONG * self.pace.horizon else 0
        horizon = self.pace.horizon * (LONG if spread and judging else 1)
        return self.record.starts(count, horizon, self._rng, self.policy.luck, spread)

    def _replay(self, candidates: np.ndarray, starts: list[Start]) -> tuple[np.ndarray, np.ndarray]:
        """Costs of candidates from starts, and which stood: (starts, candidates)."""
        scaled, gamma = candidates * self.record.per_size, self.pace.gamma(len(starts[0].wind))
        return replay(self.amended, self.policy, starts, scaled, gamma)

    def update(self) -> bool:
        """Looks for a better M; whether there was one."""
        if not self.record.per_size.any():
            # What M makes of a simulator's own error is noise.
            return self._rest("nothing pushes any more")
        M = self.M
        if not self.record.tells(ENOUGH if M.any() else LEAST):
            # What M answers to noise comes too late; what replays found was luck.
            return self._rest("the past tells nothing of the disturbance")
        self.drawing.renew(self.record, self.pace, M)
        if not len(self.drawing.basis):
            return False  # no window has been pushed yet
        starts = self._starts(self.search.starts)
        if M.any():
            now, stood = self._replay(M[None], starts)
            if stood.all() and not np.ptp(now):
                return False  # every step is worth the same, and none is lost
        points = self.drawing.ask(self._rng)
        costs = self._generation(self.drawing.maps(points), starts)
        candidates = [M, 0 * M, 0.5 * M]
        if costs is not None:
            candidates.extend(self.drawing.tell(points, costs))
        candidates.extend(self._cancelling())
        found = self._judge(np.stack(candidates))
        self.pace.searched(idle=not self.M.any())
        return found

    def _cancelling(self) -> list[np.ndarray]:
        """M that take off what they can of ŵ, by its last value or by all that M sees."""
        visits, per_size = self.record.visits, self.record.per_size
        found = (
            cancelling(self.amended, self.policy, visits, per_size, lags)
            for lags in sorted({1, self._shape[0]})
        )
        return [M for M in found if M is not None]

    def _rest(self, why: str) -> bool:
        """M acts no more; whether it did."""
        if not self.M.any():
            return False
        self.say(f"stepped back to the base policy: {why}")
        self.M = np.zeros(self._shape)
        return True

    def _generation(self, candidates: np.ndarray, starts: list[Start]) -> np.ndarray | None:
        """Mean costs of a generation; None where nothing makes a difference, as where all stand.

        A third of the states is met by all, the others by the better half, which the search goes by
        alone; to the other half they are infinite.
        """
        third = -(-len(starts) // 3)
        costs, _ = self._replay(candidates, starts[:third])
        if not np.ptp(costs):
            return None
        order = np.argsort(costs.mean(axis=0), kind="stable")
        half = order[: (len(order) + 1) // 2]
        found = np.full(len(candidates), np.inf)
        tried = [costs[:, half]]
        if starts[third:]:
            tried.append(self._replay(candidates[half], starts[third:])[0])
        found[half] = np.concatenate(tried).mean(axis=0)
        return found

    def _judge(self, candidates: np.ndarray) -> bool:
        """Puts the best candidate that beats the base policy beyond doubt in M's place."""
        costs = self._costs(candidates, self.search.judges)
        margin, spread = self.search.margin, self.search.spread
        chosen = choose(costs, margin, spread)
        if not self.M.any():
            if chosen in (0, BASE, HALF):  # which are all M
                return False
            # Who looks often enough finds something: before M acts at all more are asked.
            more = self._costs(candidates, SURER * self.search.judges)
            costs = np.concatenate([costs, more])
            chosen = choose(costs, margin, spread)
        if not chosen:
            return False
        size = max(float(np.abs(costs[:, BASE]).mean()), 1e-12)
        percent = 100 * float((costs[:, 0] - costs[:, chosen]).mean()) / size
        if chosen == BASE:
            self.say(f"stepped back to the base policy: replay was {percent:.0f} % worse with M")
        elif chosen == HALF:
            self.say(f"halved M: replay was {percent:.0f} % worse with all of it")
        elif not self.M.any():
            self.say(f"began to correct: replay was {percent:.0f} % better than the base policy")
        self.M = candidates[chosen]
        return True

    def _costs(self, candidates: np.ndarray, judges: int) -> np.ndarray:
        """Of candidates from so many starts that were drawn anew, (judges, candidates)."""
        return self._replay(candidates, self._starts(judges, judging=True))[0]

    def say(self, what: str) -> None:
        """One more sentence of what was decided, or found."""
        self.decisions.append(f"after episode {self.episode}, step {self.record.steps}: {what}")

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything in numbers, for a file."""
        own = {"M": self.M, "Theta": self.amended.Theta}
        return {**self.record.arrays(), **own, **self.drawing.arrays()}

    def memory(self) -> dict[str, Any]:
        """The rest, as JSON can hold it."""
        return {
            "generator": self._rng.bit_generator.state,
            "counts": {name: getattr(self, name) for name in COUNTS},
            "drawing": self.drawing.memory(),
            "pace": self.pace.memory(),
            "doubt": self.doubt.memory(),
            "decisions": self.decisions,
        }

    def restore(self, arrays: dict[str, np.ndarray], memory: dict[str, Any]) -> None:
        """Goes on from what `arrays` and `memory` gave; what does not fit changes nothing."""
        fresh, drawing = self._blank(), self._undrawn()
        pace, doubt = self._even(), Doubt(self.say)
        try:
            fresh.restore(arrays, self.simulator.d_x)
            counts = {name: checks.integer(name, memory["counts"][name], 0) for name in COUNTS}
            pace.restore(memory["pace"])
            doubt.restore(memory["doubt"])
            drawing.restore(arrays, memory["drawing"])
            rng = np.random.default_rng(0)
            rng.bit_generator.state = memory["generator"]
            decisions = [str(each) for each in memory["decisions"]]
            M, Theta = (checks.finite_array(name, arrays[name]) for name in ("M", "Theta"))
            checks.shape("M", M, self._shape, "(h, d_u, d_w)")
            checks.shape("Theta", Theta, self.amended.Theta.shape, "(d_x, d_x + d_u)")
        except (KeyError, TypeError, IndexError, OverflowError) as error:
            raise ValueError(f"it is no record of replays: {error!r}") from error
        self.record, self._rng, self.decisions = fresh, rng, decisions
        self.M, self.amended.Theta = M, Theta
        self.drawing, self.pace, self.doubt = drawing, pace, doubt
        for name, value in counts.items():
            setattr(self, name, value)


COUNTS = ("_unlooked", "episode")
