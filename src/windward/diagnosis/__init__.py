"""Diagnosis: what changed in a world, from recorded steps and a simulator of the nominal one."""

from windward.diagnosis.diagnosis import Change, Diagnosis
from windward.diagnosis.entry import diagnose, diagnose_log
from windward.diagnosis.identify import Settings
from windward.diagnosis.log import Episode, Log, load_log, log_of, save_log
from windward.diagnosis.recorder import Recorder
from windward.diagnosis.wind import Wind

__all__ = [
    "Change",
    "Diagnosis",
    "Episode",
    "Log",
    "Recorder",
    "Settings",
    "Wind",
    "diagnose",
    "diagnose_log",
    "load_log",
    "log_of",
    "save_log",
]
