"""Docs and code say the same: deviations are tagged, and the README's commands exist."""

import re
import runpy
from pathlib import Path

import gymnasium as gym
import pytest

from windward import envs

ROOT = Path(__file__).parents[1]


def _tags() -> set[int]:
    sources = (ROOT / "src").rglob("*.py")
    return {int(n) for path in sources for n in re.findall(r"deviation (\d+)", path.read_text())}


def _entries(section: str) -> set[int]:
    text = (ROOT / "docs" / "deviations.md").read_text()
    part = text.split(f"## {section}")[1].split("\n## ")[0]
    return {int(n) for n in re.findall(r"^(\d+)\. ", part, flags=re.MULTILINE)}


def test_every_deviation_is_tagged_in_the_code_and_every_tag_has_an_entry() -> None:
    assert _tags() == _entries("Decided and in the code")
    assert not _entries("Decided and in the code") & _entries("Decided, for parts to come")


def test_the_results_that_the_readme_names_are_in_the_repository() -> None:
    text = (ROOT / "README.md").read_text()
    named = re.findall(r"\]\(((?:results|docs|benchmarks)/[^)#]+)\)", text)
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_costs_of_the_papers_scale_are_those_of_the_plans(
    capsys: pytest.CaptureFixture[str],
) -> None:
    runpy.run_path(str(ROOT / "tools" / "paper_costs.py"))["main"]()
    page = (ROOT / "docs" / "studies.md").read_text()
    *rows, total = capsys.readouterr().out.splitlines()
    assert [row for row in rows if row not in page] == []
    assert total.removeprefix("all together ") in page


def test_the_schedule_is_that_of_the_runs(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "tools" / "schedule.py"))["main"]()
    page = (ROOT / "docs" / "results" / "README.md").read_text()
    rows = capsys.readouterr().out.splitlines()
    assert len(rows) > 10
    assert [row for row in rows if row not in page] == []


def test_the_tables_of_channels_are_those_of_the_environments() -> None:
    page = (ROOT / "docs" / "disturbances.md").read_text()
    assert runpy.run_path(str(ROOT / "docs" / "disturbances.py"))["with_tables"](page) == page


def test_the_page_of_disturbances_shows_every_one_and_its_texts_parse() -> None:
    page = (ROOT / "docs" / "disturbances.md").read_text()
    texts = re.findall(r"^\| `(\w+:[^`]*)` \| `\w+\(", page, flags=re.MULTILINE)
    shown = {text.partition(":")[0] for text in texts}
    assert shown == {line.split(":")[0].strip() for line in envs.available().split("\n")}
    for text in texts:
        if not text.startswith("recorded"):
            envs.parse(text)


def test_the_code_of_the_page_of_disturbances_runs() -> None:
    page = (ROOT / "docs" / "disturbances.md").read_text()
    scope: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL):
        scope.setdefault("action", gym.make("Hopper-v5").action_space.sample())
        exec(block, scope)
    assert "w_hat" in scope


def test_the_code_of_the_page_of_agents_runs() -> None:
    page = (ROOT / "docs" / "agents.md").read_text()
    scope: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL):
        exec(block.replace("2_000", "300"), scope)  # shorter: what is tested is that it runs
    assert "policy" in scope
