"""The page of a study of trainings."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from windward.studies import groups as grouping
from windward.studies import report, store
from windward.studies.entries import Entry
from windward.studies.groups import Drawing, Group, Numbers
from windward.studies.report import Chart, Curve, Section, Table, Text
from windward.studies.scales import Size
from windward.studies.statistics import Interval
from windward.studies.trainings import BASELINE

COLUMNS = {
    "train_return": "Return while training, with exploration",
    "M_norm": "Size of M",
    "w_hat_norm": "Mean size of the pseudo-disturbance",
    "clipped": "Share of actions that were clipped",
}
"""columns of the curves that have a chart of their own, where a run has them"""


class Found(NamedTuple):
    """A study and how far it is."""

    settings: Any
    entry: Entry
    size: Size
    every: Sequence[Group]
    show: Sequence[Group]
    """the groups that were run on the shown seeds"""
    best: Mapping[str, Group]
    """of each method the group that was chosen; empty where nothing is"""
    failed: Mapping[str, str]

    @property
    def root(self) -> Path:
        """Where the runs lie."""
        root: Path = self.settings.how.runs
        return root

    @property
    def leading(self) -> list[Group]:
        """The group of each method that stands for it: the one that was chosen, or all."""
        chosen = {group.name for group in self.best.values()}
        return [group for group in self.show if not chosen or group.name in chosen]

    @property
    def title(self) -> str:
        """Over figures."""
        return f"{self.entry.name}: {self.settings.env.rpartition('/')[2]}"


def drawn_of(show: Sequence[Group], root: Path, column: str, drop: int = 0) -> dict[str, Drawing]:
    """The curves of those groups that have any, by name."""
    found = {group.name: grouping.drawing(group, root, column, drop) for group in show}
    return {name: drawing for name, drawing in found.items() if drawing is not None}


def span(each: Interval) -> str:
    """A number with its interval."""
    return f"{each.value:.1f} [{each.low:.1f}, {each.high:.1f}]"


class Page:
    """The page, section by section."""

    def __init__(
        self, found: Found, told: Mapping[str, Numbers], drawn: Mapping[str, Drawing]
    ) -> None:
        self.found, self.told, self.drawn = found, told, drawn
        self.settings, self.size, self.root = found.settings, found.size, found.root

    def write(self, path: Path, lead: str, summary: dict[str, Any]) -> None:
        """Writes it."""
        entry, leading, show = self.found.entry, self.found.leading, self.found.show
        sections = [
            self._bands("Learning curves, as the paper draws them", "mean", leading),
            self._results(),
            self._bands("Interquartile mean", "iqm", leading),
            *([self._bands("All groups", "mean", show)] if len(show) > len(leading) else []),
            self._raw(),
            *self._columns(),
            *self._choice(),
            self._runs(),
            Text("How it was made", self._story()),
        ]  # fmt: skip
        facts = {
            "command": summary["command"],
            "scale": f"{self.settings.scale}: {self.size.seeds} seeds, {self.size.steps:,} "
            f"{entry.x_label}",
            "settings": "\n".join(_lines(summary["settings"])),
            "versions": "\n".join(f"{name} {value}" for name, value in summary["versions"].items()),
            "commit": summary["commit"] or "unknown",
        }
        title = f"{entry.name}: {entry.title}"
        report.write(path, title, lead, sections, facts)

    def _bands(self, title: str, kind: str, groups: Sequence[Group]) -> Chart:
        note = {
            "mean": "Each run smoothed (0.1 of the whole), put on a fine grid; mean over seeds and "
            "one standard error σ/√N.",
            "iqm": "Of the same curves the mean of the middle half, with 95 % bootstrap intervals "
            "over whole runs.",
        }[kind]
        if self.settings.drop_worst:
            note += f" The {self.settings.drop_worst} lowest runs of each group are not drawn here."
        bands = {g.name: getattr(self.drawn[g.name], kind) for g in groups if g.name in self.drawn}
        short = [name for name, band in bands.items() if band.runs.min() < band.runs.max()]
        if short:
            note += f" Not all runs reach the end: {'; '.join(short)}."
        curves = [
            Curve(name, band.x, band.y, band.low, band.high, dashed=name.startswith(BASELINE))
            for name, band in bands.items()
        ]
        return Chart(title, self.found.entry.x_label, "return", curves, note)

    def _raw(self) -> Chart:
        return Chart(
            "Every run, not smoothed", self.found.entry.x_label, "return",
            [_joined(name, drawing) for name, drawing in self.drawn.items()],
            "The evaluations of all seeds; none is left out.",
        )  # fmt: skip

    def _columns(self) -> list[Section]:
        charts: list[Section] = []
        for column, title in COLUMNS.items():
            with_it = [
                group for group in self.found.leading
                if any(column in store.curve(run, self.root) for run in group.shown)
            ]  # fmt: skip
            drawn = drawn_of(with_it, self.root, column)
            if drawn:
                curves = [
                    Curve(name, each.mean.x, each.mean.y, each.mean.low, each.mean.high)
                    for name, each in drawn.items()
                ]
                note = "Smoothed as above; mean and one standard error."
                charts.append(Chart(title, self.found.entry.x_label, column, curves, note))
        return charts

    def _results(self) -> Table:
        rows: list[list[report.Cell]] = []
        for group in self.found.show:
            each = self.told[group.name]
            there = each.there
            rows.append(
                [
                    group.name, *("–" if x is None else span(x) for x in (each.mean, each.iqm)),
                    each.error, float(there.min()) if len(there) else None, len(there),
                    min(each.reached),
                ]
            )  # fmt: skip
        columns = ("group", "mean", "interquartile mean", "σ/√N", "worst seed", "seeds", "steps")
        note = (
            f"Final return: the mean of the last {grouping.FINAL:.0%} of a run's evaluations, "
            f"{self.size.eval_episodes} episode(s) each, M at rest; [ ] 95 % bootstrap over seeds."
        )
        return Table("Final return", columns, rows, note)

    def _choice(self) -> list[Section]:
        judged = [group for group in self.found.every if group.judged]
        if not judged:
            return []
        chosen = {group.name for group in self.found.best.values()}
        rows: list[list[report.Cell]] = [
            [group.name, grouping.score(group, self.root), "chosen" if group.name in chosen else ""]
            for group in judged
        ]
        note = (
            f"Mean return of the last half of the evaluations of {self.size.tune_seeds} other "
            f"seed(s), {self.size.tune_steps:,} steps."
        )
        return [Table("How the best of each method was chosen", ("group", "score", ""), rows, note)]

    def _runs(self) -> Table:
        rows: list[list[report.Cell]] = []
        for group in self.found.show:
            each = self.told[group.name]
            for run, seed, final, reached in zip(
                group.shown, each.seeds, each.final, each.reached, strict=True
            ):
                state = self.found.failed.get(run.name)
                if state is None:
                    state = "finished" if store.finished(run, self.root) else "not finished"
                rows.append([group.name, seed, final, reached, state])
        return Table("Every run", ("group", "seed", "final return", "steps", ""), rows)

    def _story(self) -> list[str]:
        size, entry = self.size, self.found.entry
        story = [
            f"{entry.shows} {entry.says}",
            entry.made,
            f"Here: {size.seeds} seed(s) of {size.steps:,} {entry.x_label} each (scale "
            f"{self.settings.scale}); the paper has {entry.paper}.",
            "No run was left out of any number. Raw results: curves.csv has every evaluation, "
            "summary.json all numbers.",
        ]
        warned = {
            text for group in self.found.show for run in group.shown
            for done in (store.finished(run, self.root),) if done is not None
            for text in done.warned
        }  # fmt: skip
        return story + [f"Warned: {text}" for text in sorted(warned)]


def _joined(name: str, drawing: Drawing) -> Curve:
    """All runs of a group as one curve, with a gap between two: one switch for all."""
    x = np.concatenate([np.append(x, np.nan) for _, x, _ in drawing.raw])
    y = np.concatenate([np.append(y, np.nan) for _, _, y in drawing.raw])
    return Curve(name, x, y, dashed=name.startswith(BASELINE))


def _lines(settings: Mapping[str, Any], prefix: str = "") -> list[str]:
    lines = []
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            lines += _lines(value, f"{prefix}{name}.")
        elif value is not None:
            lines.append(f"{prefix}{name}: {value}")
    return lines
