"""The page and the figures of a study of groups."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from windward.studies import plots, report, text
from windward.studies.paper import groups as grouping
from windward.studies.paper.groups import BASELINE, Found, Group
from windward.studies.report import Chart, Curve, Section, Table, Text
from windward.studies.runs import store
from windward.studies.stats import FEW, FINAL, TOO_NARROW, Drawing, Raw, counted, span
from windward.studies.text import Cell

COLUMNS = {
    "train_return": ("Return while training, with exploration", "return"),
    "M_norm": ("Size of M", "|M|"),
    "w_hat_norm": ("Mean size of the pseudo-disturbance", "|ŵ|"),
    "clipped": ("Share of actions that were clipped", "share"),
}
"""columns of the curves that have a chart of their own, where a run has them: title, y axis"""
CHOOSING = "{} (choosing runs)"
"""what curves of a group are called that only served to choose"""


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
    """The page, section by section; `drawn` are the curves of the groups that have any."""

    def __init__(self, found: Found, drawn: Mapping[str, Drawing]) -> None:
        self.found, self.drawn, self.size = found, drawn, found.size
        self.label = found.entry.x_label
        self.counts = self.label.split()[-1]
        """what a run's length is counted in: steps, or episodes"""

    def write(self, path: Path, lead: Sequence[str], summary: dict[str, Any]) -> None:
        """Writes it."""
        found = self.found
        mean, iqm, every = self._three(found.leading)
        sections: list[Section] = [mean, self.results(), Text("What was run", self._story())]
        if len(found.show) > len(found.leading):
            sections.append(self._three(found.show, "All groups")[0])
        sections += [iqm, every, *self._unchosen(), *self._columns(), *self._choice()]
        sections.append(self._runs())
        scale = f"{found.settings.scale}: {counted(self.size.seeds, 'seed')}, "
        facts = text.facts(summary, scale=f"{scale}{self.size.steps:,} {self.label}")
        title = f"{found.entry.name}: {found.entry.title}"
        report.write(path, title, "\n".join((question(found), *lead)), sections, facts)

    def figures(self) -> dict[str, list[Chart]]:
        """The figures by name: the best of each method, all groups, and a panel for each group."""
        found = self.found
        several = len(found.show) > len({group.method for group in found.show})
        raw = {g.name: self.drawn[g.name].raw for g in found.show if g.name in self.drawn}
        raw |= {CHOOSING.format(name): runs for name, runs in found.unchosen.items()}
        return {
            "best": self._three(found.leading),
            "all": self._three(found.show, "All groups")[:1] if several else [],
            "raw": [
                Chart(name, self.label, "return",
                      [Curve(f"seed {seed}", x, y, thin=True) for seed, x, y in runs])
                for name, runs in raw.items()
            ],
        }  # fmt: skip

    def _run(self, name: str, raw: Raw) -> Curve:
        dashed = name.startswith(BASELINE)
        return report.joined(name, [run[1:] for run in raw], dashed=dashed)

    def _three(self, groups: Sequence[Group], title: str = "Learning curves") -> list[Chart]:
        names = [group.name for group in groups]
        drawn = {name: each for name, each in self.drawn.items() if name in names}
        note = ""
        if all(len(each.rows) < 2 for each in drawn.values()):
            note += " Of one run there is no band."
        if self.found.settings.drop_worst:
            note += (
                f" Not drawn here: of each group the {self.found.settings.drop_worst} run(s) with "
                "the lowest final return."
            )
        short = [n for n, each in drawn.items() if each.mean.runs.min() < each.mean.runs.max()]
        if short:
            note += f" Not all runs reach the end: {'; '.join(short)}."
        mean, iqm, every = plots.three(drawn, title, self.label, "return", self.found.baselines)
        return [*(replace(each, note=each.note + note) for each in (mean, iqm)), every]

    def _unchosen(self) -> list[Section]:
        """What there is of groups that are not shown: in raw.png they are panels beside these."""
        found, size = self.found.unchosen, self.size
        if not found:
            return []
        kind = "shorter runs" if size.tune_steps < size.steps else "runs"
        note = (
            f"Of these groups there are only the {kind} that chose the best of each method: "
            f"{counted(size.tune_seeds, 'other seed')} of {size.tune_steps:,} {self.label} each. "
            "They are in no other chart, and in raw.png the panels called choosing runs."
        )
        curves = [self._run(CHOOSING.format(name), raw) for name, raw in found.items()]
        title = "Groups that were not chosen, not smoothed"
        return [Chart(title, self.label, "return", curves, note)]

    def _columns(self) -> list[Section]:
        charts: list[Section] = []
        for column, (title, label) in COLUMNS.items():
            drawn = grouping.drawn_of(self.found.leading, self.found.root, column)
            if drawn:
                note = "Smoothed as above; mean and one standard error."
                curves = plots.bands(drawn, "mean", self.found.baselines)
                charts.append(Chart(title, self.label, label, curves, note))
        return charts

    def results(self) -> Table:
        """What every shown group came to."""
        rows: list[list[Cell]] = []
        told = self.found.told
        for group in self.found.show:
            each, there = told[group.name], told[group.name].there
            spans = ("–" if x is None else span(x) for x in (each.mean, each.iqm))
            worst = float(there.min()) if len(there) else None
            rows.append([group.name, *spans, each.error, worst, len(there), min(each.reached)])
        note = (
            f"Final return: the mean of the last {FINAL:.0%} of a run's evaluations, "
            f"{counted(self.size.eval_episodes, 'episode')} each. [ ]: 95 % bootstrap interval "
            "over seeds"
        )
        if any(len(set(each.reached)) > 1 for each in told.values()):
            note = f"{self.counts.capitalize()}: the fewest of any seed. {note}"
        if all(len(each.there) < FEW for each in told.values()):
            note += f", {TOO_NARROW}"
        columns = (
            "group", "mean", "interquartile mean", "σ/√N", "worst seed", "seeds",
            self.counts,
        )  # fmt: skip
        return Table("Final return", columns, rows, f"{note}.")

    def _choice(self) -> list[Section]:
        found, size = self.found, self.size
        judged = [group for group in found.every if group.judged]
        if not judged:
            return []
        rows: list[list[Cell]] = []
        for group in judged:
            done = sum(store.finished(run, found.root) is not None for run in group.judged)
            chosen = "chosen" if group.name in found.chosen else ""
            score = grouping.score(group, found.root)
            rows.append([group.name, score, f"{done} of {len(group.judged)}", chosen])
        note = (
            f"Score: the mean return of the last half of the evaluations of "
            f"{counted(size.tune_seeds, 'other seed')}, {size.tune_steps:,} {self.label} each."
        )
        if not found.settled:
            note += " Not all of these runs are finished: the choice may change."
        columns = ("group", "score", "runs finished", "")
        return [Table("How the best of each method was chosen", columns, rows, note)]

    def _runs(self) -> Table:
        rows: list[list[Cell]] = []
        for group in self.found.show:
            each = self.found.told[group.name]
            own = zip(group.shown, each.seeds, each.final, each.reached, strict=True)
            for run, seed, final, reached in own:
                done = store.finished(run, self.found.root)
                state = self.found.failed.get(run.name) or (
                    "finished" if done else "not finished"
                )  # fmt: skip
                rows.append([group.name, seed, final, reached, state])
        return Table("Every run", ("group", "seed", "final return", self.counts, ""), rows)

    def _story(self) -> list[str]:
        found, size, entry, label = self.found, self.size, self.found.entry, self.label
        shown = [seed for each in found.told.values() for seed in each.seeds]
        here = (
            f"Here: {counted(size.seeds, 'seed')} ({min(shown)} to {max(shown)}) of {size.steps:,} "
            f"{label} each, scale {found.settings.scale}. In the paper: {entry.paper}."
        )
        if any(group.judged for group in found.every):
            here += (
                f" The best of each method was chosen on {counted(size.tune_seeds, 'other seed')} "
                f"(from 0 on) of {size.tune_steps:,} {label}, and is shown on seeds that chose "
                "nothing."
            )
        missing = sum(final is None for each in found.told.values() for final in each.final)
        left_out = (
            f"Of {missing} of {len(shown)} runs there is no return yet; every other is in all "
            "numbers." if missing else "No run is left out of any number."
        )  # fmt: skip
        done = [store.finished(run, found.root) for group in found.show for run in group.shown]
        warned = {text for each in done if each is not None for text in each.warned}
        return [
            entry.shows, entry.made, here,
            f"{left_out} Raw results: curves.csv has every evaluation, summary.json all numbers.",
            *(f"Failed: {name}: {reason}" for name, reason in found.failed.items()),
            *(f"Warned: {text}" for text in sorted(warned)),
        ]  # fmt: skip
