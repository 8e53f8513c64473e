"""What every form of the adaptive layer shows: what acts and why, freezing, files, faults."""

import warnings
from pathlib import Path
from typing import Any

from windward.adapt import saving
from windward.adapt.corrections import Correction
from windward.adapt.diagnosed import Diagnosed
from windward.adapt.learners.policy_gradient import PolicyGradient
from windward.adapt.runtime import Runtime
from windward.diagnosis.diagnosis import Diagnosis


class Shell:
    """Around a runtime, which is in `_runtime`."""

    _runtime: Runtime

    @property
    def learner(self) -> str:
        """The name of the learner in use."""
        return self._runtime.learner.name

    @property
    def has_M(self) -> bool:
        """Whether the learner keeps an M."""
        return isinstance(self._runtime.learner, PolicyGradient)

    @property
    def _gradient(self) -> PolicyGradient:
        """The learner, if it keeps an M."""
        found = self._runtime.learner
        if not isinstance(found, PolicyGradient):
            raise ValueError(
                f"learner {self.learner!r} has no M: what acts is in .correction, and .diagnosis "
                "says what changed; for an M say learner='mf-gpc'"
            )
        return found

    @property
    def diagnosis(self) -> Diagnosis | None:
        """What changed in the world, as far as is known; None where nothing did."""
        found = self._runtime.learner
        return found.supervisor.belief.diagnosis if isinstance(found, Diagnosed) else None

    @property
    def correction(self) -> Correction | None:
        """What acts in a diagnosed world now; None for nothing, and for other learners."""
        found = self._runtime.learner
        return found.supervisor.acts if isinstance(found, Diagnosed) else None

    @property
    def phase(self) -> str:
        """What is being done: observe, trial, active or rest."""
        return self._runtime.learner.phase

    @property
    def M(self) -> Any:
        """The parameters M, shape (h, d_u, d_w); with an M for each row, (rows, h, d_u, d_w)."""
        return self._gradient.M

    @M.setter
    def M(self, M: Any) -> None:
        self._gradient.M = M

    @property
    def signal(self) -> str | None:
        """The name of the signal in use, if there is one."""
        source = getattr(self._runtime.learner, "source", None)
        if isinstance(self._runtime.learner, Diagnosed):
            return "pd3"
        return None if source is None else str(source.name)

    @property
    def baseline(self) -> str | None:
        """What costs are compared with where M is learned from scores; None for nothing."""
        return self._gradient.baseline

    @property
    def decisions(self) -> list[str]:
        """What was decided, in sentences: what changed, what acts, and why."""
        return self._runtime.decisions

    @property
    def frozen(self) -> bool:
        """Whether adaptation is stopped."""
        return self._runtime.frozen

    @property
    def faults(self) -> dict[str, int]:
        """How often what kind of bad input was met: action, observation, reward, signal, late."""
        return dict(self._runtime.faults)

    @property
    def clipped(self) -> int:
        """How many corrected actions were cut off at the bounds."""
        return self._runtime.clipped

    def freeze(self) -> None:
        """Stops adaptation and exploration: what acts goes on. PD1 keeps its noise, and says so."""
        self._runtime.freeze()
        found = self._runtime.learner
        noisy = isinstance(found, PolicyGradient) and not found.discrete
        if noisy and found.source.signal.uses_score:  # type: ignore[attr-defined]
            warnings.warn(
                "PD1 is estimated from the exploration noise, so the noise goes on while frozen",
                UserWarning,
                stacklevel=2,
            )

    def unfreeze(self) -> None:
        """Adapts again, from where it was."""
        self._runtime.freeze(False)

    @property
    def updates_when_told(self) -> bool:
        """Whether gradients are summed until `update_M`: made with every_episodes="told"."""
        return self.has_M and self._gradient.engine.waits_for_tell

    def update_M(self) -> None:
        """Applies the gradients summed so far, now, between two steps; nothing while frozen."""
        if not self.updates_when_told:
            raise ValueError(
                "M is updated as it goes here; make the wrapper with every_episodes='told' for an "
                "M that waits for update_M()"
            )
        if not self.frozen:
            self._gradient.engine.tell()

    def reset_adaptation(self) -> None:
        """Forgets what was learned: all is as when it was made; the episode goes on."""
        self._runtime.reset()

    def save(self, path: str | Path) -> None:
        """Writes what was learned and recorded; the environment's own state is not in the file.

        The base policy, its values and the environment are not either: make the same again.
        """
        saving.save(self._runtime, path)

    def load(self, path: str | Path) -> None:
        """Goes on from what `save` wrote; what does not fit is refused and changes nothing."""
        saving.load(self._runtime, path)
