"""What every form of the adaptive layer shows its user: M, freezing, files, faults."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from windward.adapt import saving
from windward.adapt.corrections import Correction
from windward.adapt.module import Module
from windward.adapt.runtime import Runtime
from windward.adapt.table import Step
from windward.core import updates
from windward.diagnosis.diagnosis import Diagnosis


class Shell:
    """Around a module, which is in `_module`."""

    _module: Any  # a Runtime, or a Module for learners that know no diagnosis

    @property
    def _own(self) -> Module:
        """The module of a learner of M."""
        if isinstance(self._module, Runtime):
            raise ValueError(
                f"learner {self.learner!r} has no M: what acts is in .correction, and .diagnosis "
                "says what changed; for an M say learner='mf-gpc'"
            )
        found: Module = self._module
        return found

    @property
    def learner(self) -> str:
        """The name of the learner in use."""
        if isinstance(self._module, Runtime):
            return self._module.learner
        return {"reinforce": "mf-gpc", "counterfactual": "replay"}.get(
            self._module.gradient, self._module.gradient
        )

    @property
    def has_M(self) -> bool:
        """Whether the learner keeps an M."""
        return not isinstance(self._module, Runtime)

    @property
    def diagnosis(self) -> Diagnosis | None:
        """What changed in the world, as far as is known; None where nothing did."""
        if isinstance(self._module, Runtime):
            return self._module.supervisor.belief.diagnosis
        return None

    @property
    def correction(self) -> Correction | None:
        """What acts on top of the base policy now; None for nothing, and for learners of M."""
        if isinstance(self._module, Runtime):
            return self._module.supervisor.acts
        return None

    @property
    def phase(self) -> str:
        """What the supervisor is doing: observe, trial, active or rest."""
        if isinstance(self._module, Runtime):
            return str(self._module.supervisor.phase)
        return "active"

    @property
    def M(self) -> Any:
        """The parameters M, shape (h, d_u, d_w); with an M for each row, (rows, h, d_u, d_w)."""
        return self._own.engine.M

    @M.setter
    def M(self, M: Any) -> None:
        module = self._own
        if module.teacher is not None:
            raise ValueError("M is kept by replays here; to set it yourself say learner='mf-gpc'")
        module.engine.M = M
        guard = module.guard
        if guard is not None:  # as with M0
            guard.trust()
            module.stretch()

    @property
    def signal(self) -> str:
        """The name of the signal in use."""
        if isinstance(self._module, Runtime):
            return "pd3"
        return str(self._module.source.name)

    @property
    def baseline(self) -> str | None:
        """What costs are compared with where M is learned from scores; None for nothing."""
        return self._own.baseline

    @property
    def decisions(self) -> list[str]:
        """What was decided, in sentences: what changed, what acts, and why."""
        if isinstance(self._module, Runtime):
            return self._module.decisions
        judge = self._module.judge
        return [] if judge is None else list(judge.decisions)

    @property
    def frozen(self) -> bool:
        """Whether adaptation is stopped."""
        return bool(self._module.frozen)

    @property
    def faults(self) -> dict[str, int]:
        """How often what kind of bad input was met: action, observation, reward, signal, late."""
        return dict(self._module.faults)

    @property
    def clipped(self) -> int:
        """How many executed actions were cut off at the bounds."""
        return int(self._module.clipped)

    def freeze(self) -> None:
        """Stops adaptation and exploration: M acts as it is. PD1 keeps its noise, and says so."""
        self._module.freeze()
        if isinstance(self._module, Runtime):
            return
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
        if isinstance(self._module, Runtime):
            return False
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
        engine = self._own.engine
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
