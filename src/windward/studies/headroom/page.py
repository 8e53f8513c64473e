"""The tables and the page of `headroom`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.markup import escape
from rich.table import Table as Terminal

from windward.studies.evaluation.numbers import safe_mean
from windward.studies.headroom import numbers as stats
from windward.studies.headroom.cases import CASES, EVERY, NOTHING
from windward.studies.headroom.methods import BASE, BEST, METHODS
from windward.studies.pages import report
from windward.studies.pages.report import Chart, Curve, Section, Table, Text
from windward.studies.pages.statistics import TOO_NARROW
from windward.studies.runs.scale import SMOKE

Found = Mapping[str, Mapping[str, stats.Outcome]]
EXACT, WRONG = "counterfactual", ("heavy", "light")
SHOWN = 40  # decisions of a method on a case at most


def _share(found: stats.Outcome) -> str:
    """Mean, interval and worst seed."""
    if not np.isfinite(found.mean.value):
        return f"no headroom ({found.returns.value:.0f})"
    mean, low, high = found.mean
    return f"{mean:.2f} [{low:.2f}, {high:.2f}] {found.each[found.worst]:.2f}"


def _percent(found: stats.Outcome) -> str:
    mean, low, high = (100 * each for each in found.mean)
    return f"{mean:+.1f} [{low:+.1f}, {high:+.1f}] {100 * found.each[found.worst]:+.1f}"


def _wind(name: str) -> str:
    case = EVERY[name]
    return f"{case.wind} on {case.channel}" if case.wind else "no wind"


def terminal(found: Found, last: int, seeds: int) -> list[Terminal]:
    """The tables for the terminal: one for each environment, cases in columns."""
    gain = f"share of the headroom in the last {last} episodes (0: base, 1: best fixed M)"
    idle = "nothing to gain: adapted minus base in % of the base's return"
    tables = []
    for names, text, title in ((CASES, _share, gain), (NOTHING, _percent, idle)):
        for env in dict.fromkeys(EVERY[name].env for name in found if name in names):
            there = [name for name in found if name in names and EVERY[name].env == env]
            table = Terminal(
                title=f"{env}, {title}",
                caption=f"{seeds} held-out seed(s); \\[ ]: 95 % bootstrap interval over seeds, "
                f"{TOO_NARROW}; then the worst seed",
            )
            table.add_column("method", no_wrap=True)
            for name in there:
                table.add_column(name, justify="right")
            for method in METHODS:
                row = [found[name].get(method) for name in there]
                if any(row):
                    cells = ["-" if each is None else text(each) for each in row]
                    table.add_row(method, *map(escape, cells))
            tables.append(table)
    return tables


def write(
    path: Path,
    found: Found,
    returns: Mapping[str, Mapping[str, np.ndarray]],
    decisions: Mapping[tuple[str, str], list[str]],
    still: Mapping[tuple[str, str], int],
    linear: Mapping[str, Any],
    seeds: tuple[int, ...],
    summary: dict[str, Any],
) -> None:
    """The page; `summary` is what summary.json holds."""
    sections: list[Section] = [*_linear(linear), *_wrong(found, still, len(seeds))]
    for name, by in found.items():
        sections += [_table(name, by, seeds), _curves(name, returns[name])]
        said = {method: decisions.get((name, method), []) for method in by}
        texts = [
            f"{method}: " + "; ".join(lines[:SHOWN]) + (" ..." if len(lines) > SHOWN else "")
            for method, lines in said.items()
            if lines
        ]
        if texts:
            sections.append(Text(f"{name}: what was decided", texts))
    sections.append(Text("How it was made", _story(seeds, summary["settings"]["last"])))
    facts = {
        "command": summary["command"],
        "seeds": ", ".join(map(str, seeds)),
        "tuned": "\n".join(
            f"{case}, {method}: {numbers}"
            for case, by in summary["tuned"].items()
            for method, numbers in by.items()
        ),
        "settings": "\n".join(f"{name}: {value}" for name, value in summary["settings"].items()),
        "versions": "\n".join(f"{name} {value}" for name, value in summary["versions"].items()),
        "commit": summary["commit"] or "unknown",
        "commits of runs": "\n".join(summary["commits_of_runs"]),
    }
    lead = _lead(found)
    if summary["settings"]["scale"] == "smoke":
        lead = f"{SMOKE} {lead}"
    title = "Headroom: what adapting captures, and what it risks"
    report.write(path, title, lead, sections, facts)


def _lead(found: Found) -> str:
    """The method that captures most, on average over the cases, and how it does elsewhere."""
    gains = [name for name in found if name in CASES]
    scores: dict[str, list[float]] = {}
    for name in gains:
        for method, each in found[name].items():
            if method not in (BASE, BEST) and np.isfinite(each.mean.value):
                scores.setdefault(method, []).append(each.mean.value)
    full = {method: each for method, each in scores.items() if len(each) == len(gains)} or scores
    if not full:
        return "No method was run on a case with headroom."
    best = max(full, key=lambda method: float(np.mean(full[method])))
    text = (
        f"Of {len(gains)} case(s) with headroom, {best} captures {np.mean(full[best]):.2f} on "
        f"average (least {min(full[best]):.2f})."
    )
    idle = [name for name in found if name in NOTHING and best in found[name]]
    safe = [name for name in idle if stats.harmless(EVERY[name], found[name][best])]
    if idle:
        text += f" Where there is nothing to gain it does no harm in {len(safe)} of {len(idle)}."
    return text


def _table(name: str, by: Mapping[str, stats.Outcome], seeds: tuple[int, ...]) -> Table:
    case = EVERY[name]
    unit = "share of the headroom" if case.gains else "adapted minus base, % of the base's return"
    columns = ["method", "sees", unit, "worst seed", "return"]
    factor, digits = (1.0, 2) if case.gains else (100.0, 2)
    rows: list[list[report.Cell]] = []
    for method, each in by.items():
        mean, low, high = (factor * value for value in each.mean)
        worst = f"{factor * each.each[each.worst]:.{digits}f} (seed {seeds[each.worst]})"
        text = f"{mean:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"
        if not np.isfinite(mean):
            change, low, high = (100 * value for value in each.change)
            text = f"no headroom; {change:.1f} % [{low:.1f}, {high:.1f}] of the base's return"
            worst = "-"
        if not case.gains:
            worst += "" if stats.harmless(case, each) else ", beyond the limit"
        rows.append([method, METHODS[method].sees, text, worst, f"{each.returns.value:.0f}"])
    return Table(f"{name}: {case.env}, {_wind(name)}", columns, rows,
                 note=f"[ ]: 95 % bootstrap interval over seeds, {TOO_NARROW}.")  # fmt: skip


def _wrong(found: Found, still: Mapping[tuple[str, str], int], seeds: int) -> list[Section]:
    """Simulators that are wrong on purpose, beside the exact one."""
    rows: list[list[report.Cell]] = []
    for name, by in found.items():
        if name in CASES and EXACT in by and any(method in by for method in WRONG):
            cells = [_share(by[method]) if method in by else "-" for method in (EXACT, *WRONG)]
            back = [f"{still[name, method]} of {seeds}" for method in WRONG if method in by]
            worse = [
                method for method in WRONG if method in by and stats.worse(by[EXACT], by[method])
            ]
            rows.append([name, *cells, ", ".join(back), ", ".join(worse) or "none"])
    if not rows:
        return []
    columns = ["case", EXACT, *WRONG, "M was 0 in the end", "worse than base where exact helps"]
    return [Table("A simulator that is wrong: shares of the headroom", columns, rows,
                  note="heavy, light: mass and friction 30 % too large, too small.")]  # fmt: skip


def _curves(name: str, by: Mapping[str, np.ndarray]) -> Chart:
    curves = []
    for method, each in by.items():
        mean, low, high = np.array([safe_mean(column) for column in each.T]).T
        x = np.arange(1, each.shape[1] + 1)
        curves.append(Curve(method, x, mean, low, high, dashed=method in (BASE, BEST)))
    note = "Mean over seeds, with its 95 % interval."
    return Chart(f"{name}: return by episode", "episode", "return", curves, note)


def _linear(linear: Mapping[str, Any]) -> list[Section]:
    """The tables of `headroom-linear`."""
    return [
        Table(
            f"{name}: share of the headroom", ["method", "mean", "worst run"],
            [[method, f"{each['mean']:.2f} [{each['interval'][0]:.2f}, {each['interval'][1]:.2f}]",
              f"{each['worst']:.2f}"] for method, each in by.items()],
            note="1 is the best fixed M in hindsight, exact; [ ] is over systems.",
        )
        for name, by in linear.items()
    ]  # fmt: skip


def _story(seeds: tuple[int, ...], last: int) -> list[str]:
    return [
        "Starts, winds and the policy's own draws follow from the seed and the numbers of episode "
        "and step alone, so all methods met the same ones. A method begins each seed with a fresh "
        "M, and what it explores is counted. No seed and no episode was left out.",
        "Share of the headroom: (method - base) / (best - base), mean returns of the method's "
        f"last {last} episodes over {len(seeds)} held-out seed(s). The best fixed M was searched "
        "for on other seeds in the same wind (a file of its own has it, with the command that "
        "found it); what is tuned was tuned on other seeds in another wind.",
        "Where there is nothing to gain, all episodes count, as a share of the base's return.",
        "Raw results: episodes.csv has every episode, summary.json all numbers.",
    ]
