"""A study by name: what it shows in the paper, what the paper says of it, and how large it is."""

from dataclasses import dataclass
from typing import Any

from windward.studies.training.scales import Size


@dataclass(frozen=True)
class Entry:
    """One line of `windward list`, and what a study's page tells of the paper."""

    name: str
    title: str
    shows: str
    """the figure, and what is in it"""
    says: str
    """what the paper reports, to hold results against"""
    paper: str
    """the paper's size, in words"""
    time: str
    """of the laptop scale, on 2 cores"""
    sizes: dict[str, Size]
    default: Any
    """its settings as they come"""
    made: str
    """how its runs are made, for the page"""
    x_label: str = "environment steps"
    """what its curves count"""
    paired: bool = False
    """whether runs of one seed meet the same, episode by episode, so that their differences tell
    more than two means do"""
