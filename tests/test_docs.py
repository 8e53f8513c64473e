"""Docs and code say the same: deviations are tagged, and the README's commands exist."""

import re
from pathlib import Path

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
