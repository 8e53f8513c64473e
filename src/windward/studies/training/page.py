"""The page of a study of trainings."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from windward.studies.pages import report
from windward.studies.pages.drawing import Drawing, Raw
from windward.studies.pages.report import Chart, Curve, Section, Table, Text
from windward.studies.pages.smoothing import Band
from windward.studies.pages.statistics import FEW, TOO_NARROW
from windward.studies.pages.words import counted, lines, span
from windward.studies.runs import store
from windward.studies.training import groups as grouping
from windward.studies.training.entries import Entry
from windward.studies.training.figures import CHOOSING
from windward.studies.training.groups import Group, Numbers
from windward.studies.training.scales import Size
from windward.studies.training.trainings import BASELINE

COLUMNS = {
    "train_return": ("Return while training, with exploration", "return"),
    "M_norm": ("Size of M", "|M|"),
    "w_hat_norm": ("Mean size of the pseudo-disturbance", "|ŵ|"),
    "clipped": ("Share of actions that were clipped", "share"),
}
"""columns of the curves that have a chart of their own, where a run has them: title, y axis"""


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
    def settled(self) -> bool:
        """Whether all runs that choose are finished."""
        runs = (run for group in self.every for run in group.judged)
        return all(store.finished(run, self.root) is not None for run in runs)

    @property
    def unchosen(self) -> dict[str, Raw]:
        """The choosing runs of groups that were not run on the shown seeds, where there are any."""
        shown = {group.name for group in self.show}
        others = [group for group in self.every if group.name not in shown]
        found = {group.name: grouping.raw_curves(group.judged, self.root) for group in others}
        return {name: raw for name, raw in found.items() if raw}

    @property
    def title(self) -> str:
        """Over figures."""
        return f"{self.entry.name}: {self.settings.env.rpartition('/')[2]}"


def drawn_of(show: Sequence[Group], root: Path, column: str, drop: int = 0) -> dict[str, Drawing]:
    """The curves of those groups that have any, by name."""
    found = {group.name: grouping.drawing(group, root, column, drop) for group in show}
    return {name: drawing for name, drawing in found.items() if drawing is not None}


def question(found: Found) -> str:
    """What the study asks, and what the paper says of it."""
    methods = list(dict.fromkeys(g.method for g in found.every if g.method != BASELINE))
    several = len(methods) > 1
    names = f"{', '.join(methods[:-1])} or {methods[-1]}" if several else "".join(methods)
    asked = f"Does {names} end with a higher return than the {BASELINE}?"
    if not found.best and len(found.show) > len(methods) + 1:
        asked = f"How much do the settings of {names} and of the {BASELINE} matter?"
    return f"{asked} {found.entry.says}"


class Page:
    """The page, section by section."""

    def __init__(
        self, found: Found, told: Mapping[str, Numbers], drawn: Mapping[str, Drawing]
    ) -> None:
        self.found, self.told, self.drawn = found, told, drawn
        self.settings, self.size, self.root = found.settings, found.size, found.root

    def write(self, path: Path, lead: Sequence[str], summary: dict[str, Any]) -> None:
        """Writes it."""
        entry, leading, show = self.found.entry, self.found.leading, self.found.show
        sections = [
            self._bands("Learning curves", "mean", leading),
            self._results(),
            Text("What was run", self._story()),
            *([self._bands("All groups", "mean", show)] if len(show) > len(leading) else []),
            self._bands("Interquartile mean", "iqm", leading),
            self._raw(),
            *self._unchosen(),
            *self._columns(),
            *self._choice(),
            self._runs(),
        ]  # fmt: skip
        facts = {
            "command": summary["command"],
            "scale": f"{self.settings.scale}: {counted(self.size.seeds, 'seed')}, "
            f"{self.size.steps:,} {entry.x_label}",
            "settings": "\n".join(lines(summary["settings"])),
            "versions": "\n".join(f"{name} {value}" for name, value in summary["versions"].items()),
            "commit": summary["commit"] or "unknown",
            "commits of runs": "\n".join(summary["commits_of_runs"]),
        }
        title = f"{entry.name}: {entry.title}"
        report.write(path, title, "\n".join((question(self.found), *lead)), sections, facts)

    @property
    def counts(self) -> str:
        """What a run's length is counted in: steps, or episodes."""
        return self.found.entry.x_label.split()[-1]

    def _bands(self, title: str, kind: str, groups: Sequence[Group]) -> Chart:
        note = {
            "mean": "Drawn as the paper's appendix says: each run smoothed (0.1 of the whole) and "
            "put on a fine grid, then the mean over seeds and one standard error σ/√N.",
            "iqm": "Of the same curves the mean of the middle half, with 95 % bootstrap intervals "
            "over whole runs.",
        }[kind]
        drawn = [self.drawn[g.name] for g in groups if g.name in self.drawn]
        if all(len(each.rows) < 2 for each in drawn):
            note += " Of one run there is no band."
        if self.settings.drop_worst:
            note += (
                f" Not drawn here: of each group the {self.settings.drop_worst} run(s) with the "
                "lowest final return."
            )
        bands = {g.name: getattr(self.drawn[g.name], kind) for g in groups if g.name in self.drawn}
        short = [name for name, band in bands.items() if band.runs.min() < band.runs.max()]
        if short:
            note += f" Not all runs reach the end: {'; '.join(short)}."
        curves = [_curve(name, band) for name, band in bands.items()]
        return Chart(title, self.found.entry.x_label, "return", curves, note)

    def _raw(self) -> Chart:
        return Chart(
            "Every run, not smoothed", self.found.entry.x_label, "return",
            [_joined(name, drawing.raw) for name, drawing in self.drawn.items()],
            "The evaluations of all seeds; none is left out.",
        )  # fmt: skip

    def _unchosen(self) -> list[Section]:
        """What there is of groups that are not shown: in raw.png they are panels beside these."""
        found = self.found.unchosen
        if not found:
            return []
        size, label = self.size, self.found.entry.x_label
        kind = "shorter runs" if size.tune_steps < size.steps else "runs"
        note = (
            f"Of these groups there are only the {kind} that chose the best of each method: "
            f"{counted(size.tune_seeds, 'other seed')} of {size.tune_steps:,} {label} each. They "
            "are in no other chart, and in raw.png the panels called choosing runs."
        )
        curves = [_joined(CHOOSING.format(name), raw) for name, raw in found.items()]
        return [Chart("Groups that were not chosen, not smoothed", label, "return", curves, note)]

    def _columns(self) -> list[Section]:
        charts: list[Section] = []
        for column, (title, label) in COLUMNS.items():
            with_it = [
                group for group in self.found.leading
                if any(column in store.curve(run, self.root) for run in group.shown)
            ]  # fmt: skip
            drawn = drawn_of(with_it, self.root, column)
            if drawn:
                curves = [_curve(name, each.mean) for name, each in drawn.items()]
                note = "Smoothed as above; mean and one standard error."
                charts.append(Chart(title, self.found.entry.x_label, label, curves, note))
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
        columns = (
            "group", "mean", "interquartile mean", "σ/√N", "worst seed", "seeds",
            self.counts,
        )  # fmt: skip
        note = (
            f"Final return: the mean of the last {grouping.FINAL:.0%} of a run's evaluations, "
            f"{counted(self.size.eval_episodes, 'episode')} each. [ ]: 95 % bootstrap interval "
            "over seeds"
        )
        if any(len(set(each.reached)) > 1 for each in self.told.values()):
            note = f"{self.counts.capitalize()}: the fewest of any seed. {note}"
        if all(len(each.there) < FEW for each in self.told.values()):
            note += f", {TOO_NARROW}"
        return Table("Final return", columns, rows, f"{note}.")

    def _choice(self) -> list[Section]:
        judged = [group for group in self.found.every if group.judged]
        if not judged:
            return []
        chosen = {group.name for group in self.found.best.values()}
        rows: list[list[report.Cell]] = []
        for group in judged:
            done = sum(store.finished(run, self.root) is not None for run in group.judged)
            rows.append(
                [
                    group.name, grouping.score(group, self.root), f"{done} of {len(group.judged)}",
                    "chosen" if group.name in chosen else "",
                ]
            )  # fmt: skip
        note = (
            f"Score: the mean return of the last half of the evaluations of "
            f"{counted(self.size.tune_seeds, 'other seed')}, {self.size.tune_steps:,} "
            f"{self.found.entry.x_label} each."
        )
        if not self.found.settled:
            note += " Not all of these runs are finished: the choice may change."
        columns = ("group", "score", "runs finished", "")
        return [Table("How the best of each method was chosen", columns, rows, note)]

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
        return Table("Every run", ("group", "seed", "final return", self.counts, ""), rows)

    def _story(self) -> list[str]:
        size, entry, label = self.size, self.found.entry, self.found.entry.x_label
        shown = [seed for each in self.told.values() for seed in each.seeds]
        here = (
            f"Here: {counted(size.seeds, 'seed')} ({min(shown)} to {max(shown)}) of {size.steps:,} "
            f"{label} each, scale {self.settings.scale}. In the paper: {entry.paper}."
        )
        if any(group.judged for group in self.found.every):
            here += (
                f" The best of each method was chosen on {counted(size.tune_seeds, 'other seed')} "
                f"(from 0 on) of {size.tune_steps:,} {label}, and is shown on seeds that chose "
                "nothing."
            )
        missing = sum(final is None for each in self.told.values() for final in each.final)
        left_out = (
            f"Of {missing} of {len(shown)} runs there is no return yet; every other is in all "
            "numbers." if missing else "No run is left out of any number."
        )  # fmt: skip
        story = [
            entry.shows, entry.made, here,
            f"{left_out} Raw results: curves.csv has every evaluation, summary.json all numbers.",
            *(f"Failed: {name}: {reason}" for name, reason in self.found.failed.items()),
        ]  # fmt: skip
        warned = {
            text for group in self.found.show for run in group.shown
            for done in (store.finished(run, self.root),) if done is not None
            for text in done.warned
        }  # fmt: skip
        return story + [f"Warned: {text}" for text in sorted(warned)]


def _curve(name: str, band: Band) -> Curve:
    return Curve(name, band.x, band.y, band.low, band.high, dashed=name.startswith(BASELINE))


def _joined(name: str, raw: Raw) -> Curve:
    return report.joined(name, [run[1:] for run in raw], dashed=name.startswith(BASELINE))
