"""Base agents: D4PG, the one that the paper trains; and a peer, residual-policy learning."""

from windward.agents.actors import NotFinite
from windward.agents.d4pg import D4PG
from windward.agents.residual import ResidualPolicy
from windward.agents.robust import Robust
from windward.agents.settings import Settings

__all__ = ["D4PG", "NotFinite", "ResidualPolicy", "Robust", "Settings"]
