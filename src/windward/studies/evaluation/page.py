"""The figure and the report page of an evaluation."""

from pathlib import Path
from typing import Any

import numpy as np

from windward.studies import plots, report, text
from windward.studies.evaluation import animation
from windward.studies.evaluation import numbers as stats
from windward.studies.evaluation.evaluate import (
    ADAPTED,
    BASE,
    GREEDY,
    NOMINAL,
    Evaluate,
    Evaluation,
)
from windward.studies.report import Chart, Curve, Points, Section, Table, Text
from windward.studies.stats import FEW, TOO_NARROW, counted
from windward.studies.text import Cell

MOST = 8  # curves of one chart at most
DIFFERENCE = "adapted - base"
ABOUT = {
    NOMINAL: "the base policy without the disturbance",
    BASE: "the base policy alone, drawing from its softmax if actions are discrete",
    GREEDY: "the base policy alone, always taking its likeliest action",
    ADAPTED: "the base policy inside RobustWrapper, with a fresh M for each seed that learns over "
    "its episodes; what exploration costs is counted",
}


def wind_of(settings: Evaluate, found: Evaluation) -> str:
    """What pushed, in words."""
    if settings.disturbance is not None:
        where = f" on {settings.channel}" if settings.channel else ""  # it may be in the text
        return f"{settings.disturbance}{where}"
    return "its own disturbance" if found.own_wind else "no disturbance added"


def _bands(found: Evaluation) -> dict[str, np.ndarray]:
    """Mean and interval over seeds of each policy's episodes: (3, episodes)."""
    return {
        policy: np.array([stats.safe_mean(column) for column in runs.returns.T]).T
        for policy, runs in found.runs.items()
    }


def _largest(found: Evaluation) -> dict[str, np.ndarray]:
    """The entries of M that grew most, by name, at the steps where M was looked at."""
    if not found.M:
        return {}
    M, trace = np.asarray(found.M[0]), found.trace.M
    order = np.abs(trace).max(axis=0).argsort()[::-1][:MOST]
    named = {}
    for at in sorted(order):
        i, *rest = np.unravel_index(at, M.shape)
        named[f"M_{i + 1}[{', '.join(map(str, rest))}]"] = trace[:, at]
    return named


def figure(found: Evaluation, scopes: dict[str, stats.Numbers], settings: Evaluate) -> Any:
    """Returns by episode, paired differences, and M, or corrections of learners without M."""
    charts = [
        by_episode(found),
        by_seed(found, scopes),
        (_parameters(found) or _correction(found))[-1],
    ]
    title = f"{settings.env}, {wind_of(settings, found)}, signal {found.signal}, "
    return plots.draw(charts, f"{title}{counted(len(found.seeds), 'seed')}")


def write(
    path: Path,
    found: Evaluation,
    scopes: dict[str, stats.Numbers],
    settings: Evaluate,
    summary: dict[str, Any],
    lead: str,
) -> None:
    """The page; `summary` is what summary.json holds."""
    sections: list[Section] = [
        *_animation(found),
        *(table(name, each, len(found.seeds)) for name, each in scopes.items()),
        by_episode(found),
        by_seed(found, scopes),
        *_parameters(found),
        *_signal(found),
        _counts(found),
        *_decisions(found),
        Text("How it was made", _story(found)),
    ]
    more = {"seeds": ", ".join(map(str, found.seeds)), "signal": found.signal}
    facts = text.facts(summary, **more, learner=found.learner)
    title = f"{settings.env}, {wind_of(settings, found)}: base against adapted"
    report.write(path, title, lead, sections, facts)


def _story(found: Evaluation) -> list[str]:
    policies = "; ".join(f"{policy}: {ABOUT[policy]}" for policy in found.runs)
    notes = [f"Warned: {note}" for note in found.notes]
    return [
        f"{policies[0].upper()}{policies[1:]}.",
        "Starts, any disturbance and the policy's own draws follow from the seed and the numbers "
        "of episode and step alone, so base and adapted met the same ones, and their differences "
        "are paired by seed. (A disturbance that answers to the state, fgsm, answers each its "
        "own.) No seed and no episode was left out. The worst tenth is the mean of the worst tenth "
        f"of all episodes. Intervals: {stats.intervals(len(found.seeds))}.",
        "Raw results: episodes.csv has every episode, trace.csv every step of the first adapted "
        "seed, summary.json all numbers and the last M of each seed.",
        *notes,
    ]


def _decisions(found: Evaluation) -> list[Table]:
    """What replays or the guard said, seed by seed."""
    rows: list[list[Cell]] = [
        [str(seed), text]
        for seed, said in zip(found.seeds, found.decisions, strict=True)
        for text in said
    ]
    note = f"The learner was {found.learner}; who judged it against the base policy said this."
    return [Table("What was decided", ["seed", "decision"], rows, note=note)] if rows else []


def _animation(found: Evaluation) -> list[report.Animation]:
    """Base beside adapted, in the colours that they have in the chart of returns."""
    if found.scene is None:
        return []
    return [animation.section(found.scene, {policy: i for i, policy in enumerate(found.runs)})]


def table(name: str, each: stats.Numbers, seeds: int) -> Table:
    """Returns over some of the episodes."""
    rows: list[list[Cell]] = [
        [policy, stats.text(row.mean, seeds), stats.text(row.tenth, seeds),
         f"{stats.number(row.worst)} (seed {row.worst_seed})"]
        for policy, row in each.rows.items()
    ]  # fmt: skip
    difference = each.difference
    texts = [stats.text(interval, seeds) for interval in (difference.mean, difference.tenth)]
    rows.append([DIFFERENCE, *texts, stats.number(float(difference.each.min()))])
    return Table(
        f"Return, {name}", ["policy", "mean", "worst tenth", "worst seed"], rows,
        note=f"[ ]: {stats.intervals(seeds)}. A difference above 0 is in favour of adapting; "
        "its worst seed is the one that adapting served worst.",
    )  # fmt: skip


def by_episode(found: Evaluation) -> Chart:
    """The mean return of each policy."""
    curves = [
        Curve(policy, np.arange(1, len(mean) + 1), mean, low, high, dashed=policy == NOMINAL)
        for policy, (mean, low, high) in _bands(found).items()
    ]
    note = "Mean over seeds, with its 95 % bootstrap interval"
    note += f", {TOO_NARROW}." if len(found.seeds) < FEW else "."
    return Chart("Return by episode", "episode", "return", curves, note)


def by_seed(found: Evaluation, scopes: dict[str, stats.Numbers]) -> Chart:
    """What adapting changed on each seed."""
    dots: list[Curve | Points] = [
        Points(name, found.seeds, each.difference.each) for name, each in scopes.items()
    ]
    dots.append(Curve("0", found.seeds, np.zeros(len(found.seeds)), dashed=True))
    return Chart("Adapted minus base, each seed", "seed", "difference in return", dots)


def _parameters(found: Evaluation) -> list[Chart]:
    if not found.M:
        return []
    episodes = np.arange(1, found.runs[ADAPTED].M_norm.shape[1] + 1)
    norms = [
        Curve(f"seed {seed}", episodes, norm)
        for seed, norm in zip(found.seeds[:MOST], found.runs[ADAPTED].M_norm, strict=False)
    ]
    entries = [Curve(name, found.trace.M_at, entry) for name, entry in _largest(found).items()]
    shape = np.shape(found.M[0])
    return [
        Chart("Norm of M", "episode", "norm at the end of the episode", norms,
              f"M has the shape (h, d_u, d_w) = {shape}; the first {len(norms)} seed(s)."),
        Chart(f"Entries of M, seed {found.seeds[0]}", "step", "entry", entries,
              f"The {len(entries)} largest of {int(np.prod(shape))}; M_i[j, k] acts from the k-th "
              "number of ŵ, i steps ago, on the j-th of the action."),
    ]  # fmt: skip


def _correction(found: Evaluation) -> list[Chart]:
    largest = np.abs(found.trace.correction).max(axis=1)
    line = Curve("largest", np.arange(len(largest)), largest, thin=True)
    title = f"Largest correction, seed {found.seeds[0]}"
    return [Chart(title, "step", "half ranges of the action", [line])]


def _signal(found: Evaluation) -> list[Chart]:
    """ŵ over the first and the last episode of the first seed, with the wind itself."""
    trace = found.trace
    charts = []
    for episode in dict.fromkeys((int(trace.episode[0]), int(trace.episode[-1]))):
        at = np.flatnonzero(trace.episode == episode)
        steps = np.arange(len(at))
        largest = np.sort(np.abs(trace.w_hat).max(axis=0).argsort()[::-1][:MOST])
        curves = [Curve(f"ŵ[{i}]", steps, trace.w_hat[at, i]) for i in largest]
        curves += [
            Curve(f"sent to {name}[{i}]", steps, rows[at, i], dashed=True)
            for name, rows in trace.wind.items()
            for i in range(min(2, rows.shape[1]))
        ]
        charts.append(
            Chart(f"Pseudo-disturbance ŵ ({found.signal}), seed {found.seeds[0]}, episode "
                  f"{episode + 1}", "step of the episode", "ŵ", curves,
                  "Dashed: what was sent to the channels, in their own units.")
        )  # fmt: skip
    return charts


def _counts(found: Evaluation) -> Table:
    adapted = found.runs[ADAPTED]
    rows: list[list[Cell]] = [
        ["steps of the adapted policy", int(adapted.lengths.sum())],
        ["actions cut off at the bounds", int(adapted.clipped.sum())],
    ]
    for kind, count in (found.faults or {"of any kind": 0}).items():
        rows.append([f"faults: {kind}", count])
    return Table("Clipped actions and faults", ["what", "how often"], rows)
