"""Base agents: D4PG, the one that the paper trains."""

from windward.agents.d4pg import D4PG
from windward.agents.robust import Robust
from windward.agents.settings import Settings
from windward.agents.training import NotFinite

__all__ = ["D4PG", "NotFinite", "Robust", "Settings"]
