"""Every committed summary is made again from its committed raw data, by the code as it is now."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from windward.cli import COMPUTED
from windward.studies.paper import groups
from windward.studies.paper.trainings import ENTRIES
from windward.studies.runs.study_folder import RESULTS, read_rows
from windward.studies.spec import Study

ROOT = Path(__file__).parents[2] / "docs" / "results"
BY_NAME = {study.name: study for study in COMPUTED}
OF_STUDY = {
    folder.name: next(study for name, study in BY_NAME.items() if folder.name.startswith(name))
    for folder in sorted(ROOT.iterdir())
    if folder.name.startswith(tuple(BY_NAME))
}
"""folders of results, and the study that each is of"""
OF_GROUPS = sorted(path.parent.name for path in ROOT.glob("*/curves.csv*"))
DIGITS = 4
"""as many as a page shows"""


def shown(tree: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """All numbers as a page shows them, by where they stand."""
    if isinstance(tree, Mapping):
        for name, value in tree.items():
            yield from shown(value, f"{prefix}.{name}")
    elif isinstance(tree, list | tuple):
        for i, value in enumerate(tree):
            yield from shown(value, f"{prefix}.{i}")
    elif isinstance(tree, float | int) and not isinstance(tree, bool):
        yield prefix, f"{float(tree):.{DIGITS}g}"
    else:
        yield prefix, str(tree)


def same(made: Any, kept: Any) -> None:
    """Whatever was made is in what was kept, to the last digit that is shown."""
    found, known = dict(shown(made)), dict(shown(kept))
    assert len(found) > 3
    assert {name: text for name, text in found.items() if known.get(name) != text} == {}


def summary_of(name: str) -> dict[str, Any]:
    kept: dict[str, Any] = json.loads((ROOT / name / RESULTS).read_text())
    return kept


def test_the_results_are_small() -> None:
    assert sum(path.stat().st_size for path in ROOT.rglob("*") if path.is_file()) <= 8_000_000


def test_every_study_has_results() -> None:
    assert set(BY_NAME) == {study.name for study in OF_STUDY.values()}
    assert set(ENTRIES) | {"cartpole-discrete"} == set(OF_GROUPS)


@pytest.mark.parametrize("name", OF_STUDY)
def test_the_raw_data_of_a_study_give_its_numbers(name: str) -> None:
    study: Study = OF_STUDY[name]
    made = study.numbers(read_rows(ROOT / name / "runs.csv"))
    same(made, summary_of(name))


@pytest.mark.parametrize("name", OF_GROUPS)
def test_the_curves_of_groups_give_their_numbers(name: str) -> None:
    kept = {each["group"]: each for each in summary_of(name)["groups"]}
    made = groups.from_rows(read_rows(ROOT / name / "curves.csv"))
    assert set(made) == set(kept)
    for group, told in made.items():
        runs = [
            {"seed": seed, "final_return": final, "steps": steps}
            for seed, final, steps in zip(told.seeds, told.final, told.reached, strict=True)
        ]
        same(told.summary() | {"runs": runs}, kept[group])
