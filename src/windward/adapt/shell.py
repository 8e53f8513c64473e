"""What every form of the adaptive layer shows its user: M, freezing, files, faults."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from windward.adapt import saving
from windward.adapt.module import Module
from windward.adapt.table import Step
from windward.core import updates


class Shell:
    """Around a module, which is in `_module`."""

    _module: Module

    @property
    def M(self) -> Any:
        """The parameters M, shape (h, d_u, d_w); with an M for each row, (rows, h, d_u, d_w)."""
        return self._module.engine.M

    @M.setter
    def M(self, M: Any) -> None:
        if self._module.teacher is not None:
            raise ValueError(
                "M is kept by replays here; to set it yourself say gradient='reinforce'"
            )
        self._module.engine.M = M
        guard = self._module.guard
        if guard is not None:  # as with M0
            guard.trust()
            self._module.stretch()

    @property
    def signal(self) -> str:
        """The name of the signal in use."""
        return self._module.source.name

    @property
    def gradient(self) -> str:
        """How M is learned."""
        return self._module.gradient

    @property
    def baseline(self) -> str | None:
        """What costs are compared with where M is learned from scores; None for nothing."""
        return self._module.baseline

    @property
    def decisions(self) -> list[str]:
        """What was decided about M, in sentences: by replays, or by the guard from returns."""
        judge = self._module.judge
        return [] if judge is None else list(judge.decisions)

    @property
    def frozen(self) -> bool:
        """Whether adaptation is stopped."""
        return self._module.frozen

    @property
    def faults(self) -> dict[str, int]:
        """How often what kind of bad input was met: action, observation, reward, signal, late."""
        return dict(self._module.faults)

    @property
    def clipped(self) -> int:
        """How many executed actions were cut off at the bounds."""
        return self._module.clipped

    def freeze(self) -> None:
        """Stops adaptation and exploration: M acts as it is. PD1 keeps its noise, and says so."""
        self._module.freeze()
        if self._module.source.signal.uses_score and not self._module.actuation.discrete:
            warnings.warn(
                "PD1 is estimated from the exploration noise, so the noise goes on while frozen",
                UserWarning,
                stacklevel=2,
            )

    def unfreeze(self) -> None:
        """Adapts again, from where it was."""
        self._module.unfreeze()

    @property
    def updates_when_told(self) -> bool:
        """Whether gradients are summed until `update_M`: made with every_episodes="told"."""
        return updates.waits(self._module.engine.state.learner.optimiser)

    def update_M(self) -> None:
        """Applies the gradients summed so far, now, between two steps; nothing while frozen."""
        if not self.updates_when_told:
            raise ValueError(
                "M is updated as it goes here; make the wrapper with every_episodes='told' for an "
                "M that waits for update_M()"
            )
        if self.frozen:
            return
        engine = self._module.engine
        before = engine.state
        learner, local = before.learner, before.local
        told = learner._replace(optimiser=updates.tell(learner.optimiser))
        engine.state = before._replace(learner=told)
        # The end of an episode with a cost that is unknown: it adds nothing, and is an update.
        ends = np.ones(engine.rows, dtype=bool)
        step = Step(np.full(engine.rows, np.nan), engine.blank(), ~ends, ends, ends)
        engine.observe(step, unit=np.reshape(local.unit, (engine.rows, -1)))
        # Windows and draws are those of before: no episode has ended.
        engine.state = before._replace(learner=engine.state.learner)

    def reset_adaptation(self) -> None:
        """Forgets what was learned: M, windows, optimiser and draws are as when it was made."""
        self._module.reset()

    def save(self, path: str | Path) -> None:
        """Writes M, windows, optimiser and draws; the environment's own state is not in the file.

        The base policy, its values and the environment are not either: make the same again.
        """
        saving.save(self._module, path)

    def load(self, path: str | Path) -> None:
        """Goes on from what `save` wrote; what does not fit is refused and changes nothing."""
        saving.load(self._module, path)
