"""Base agents: D4PG, the one that the paper trains."""

from windward.agents.d4pg import D4PG, NotFinite
from windward.agents.settings import Settings

__all__ = ["D4PG", "NotFinite", "Settings"]
