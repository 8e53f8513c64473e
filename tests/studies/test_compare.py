"""Two results side by side: what differs, numbers by hand, and what is no result."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from windward.atomic import write_rows
from windward.cli import main
from windward.studies import compare
from windward.studies.compare import Compare


def _study(folder: Path, finals: list[float], steps: int = 20, **settings: Any) -> Path:
    folder.mkdir()
    runs = [{"final_return": each, "steps": steps} for each in finals]
    group = {"group": "baseline, σ = 0.2", "runs": runs}
    summary = {"command": "windward run x", "settings": settings, "groups": [group]}
    (folder / "summary.json").write_text(json.dumps(summary))
    write_rows(
        folder / "curves.csv",
        [
            {"group": group["group"], "seed": seed, "steps": steps, "eval_return": final}
            for seed, final in enumerate(finals)
            for steps in (10, 20)
        ],
    )
    return folder


def test_groups_are_matched_and_settings_that_differ_are_named(tmp_path: Path) -> None:
    one = _study(tmp_path / "one", [10.0, 20.0], eta=0.1, h=5)
    two = _study(tmp_path / "two", [110.0, 120.0, 130.0], eta=0.2, h=5)
    first, second = compare.read(one), compare.read(two)
    assert compare.changes(first, second) == [("settings.eta", "0.1", "0.2")]
    (line,) = compare.numbers(first, second)
    assert (line.first, line.second) == ("15.0 (2 seeds)", "120.0 (3 seeds)")
    assert line.difference.startswith("105.0 [")
    text = io.StringIO()
    compare.run(Compare(one, two, tmp_path / "out"), Console(file=text, width=200))
    assert "settings.eta" in text.getvalue()
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count("105.0 [") == 1
    assert '"y":[120' in page  # the curves are there


def test_of_other_results_all_numbers_that_differ_are_shown(tmp_path: Path) -> None:
    for name, mean in (("one", 0.5), ("two", 0.75)):
        (tmp_path / name).mkdir()
        content = {"headroom": {"GPC": {"mean": mean, "worst": 0.1}}, "settings": {}}
        (tmp_path / name / "summary.json").write_text(json.dumps(content))
    first, second = (compare.read(tmp_path / name) for name in ("one", "two"))
    assert compare.numbers(first, second) == [("headroom.GPC.mean", "0.5", "0.75", "+0.25")]


def test_runs_that_came_unequally_far_are_not_compared(tmp_path: Path) -> None:
    one = _study(tmp_path / "one", [10.0, 20.0], steps=10)
    two = _study(tmp_path / "two", [110.0, 120.0])
    (line,) = compare.numbers(compare.read(one), compare.read(two))
    assert line.difference == "not to be compared: unequally many steps"
    begun = json.loads((two / "summary.json").read_text())
    begun["groups"][0]["runs"].append({"final_return": None, "steps": 0})
    (line,) = compare.numbers(begun, begun)
    assert line.difference.startswith("0.0 [")  # a seed that has not begun says nothing
    text = io.StringIO()
    compare.run(Compare(one, two, tmp_path / "out"), Console(file=text, width=200))
    assert "higher in 0 of these" in text.getvalue()


def test_what_was_learned_and_decided_is_no_result(tmp_path: Path) -> None:
    for name, mean in (("one", 0.5), ("two", 0.75)):
        (tmp_path / name).mkdir()
        content = {"mean": mean, "M": [[mean]], "seeds": [int(4 * mean)], "decisions": [[mean]]}
        (tmp_path / name / "summary.json").write_text(json.dumps(content))
    first, second = (compare.read(tmp_path / name) for name in ("one", "two"))
    assert [line.name for line in compare.numbers(first, second)] == ["mean"]


def test_rows_of_a_table_are_matched_by_what_they_are_of(tmp_path: Path) -> None:
    rows = [{"T": T, "method": "BPC", "mean": T / 1000} for T in (100, 300)]
    for name, kept in (("one", rows), ("two", [{**rows[1], "mean": 0.5}])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "summary.json").write_text(json.dumps({"headroom": kept}))
    first, second = (compare.read(tmp_path / name) for name in ("one", "two"))
    assert compare.numbers(first, second) == [("headroom.BPC 300.mean", "0.3", "0.5", "+0.2")]


def test_of_one_seed_no_interval_is_made_up(tmp_path: Path) -> None:
    one, two = _study(tmp_path / "one", [10.0]), _study(tmp_path / "two", [110.0])
    (line,) = compare.numbers(compare.read(one), compare.read(two))
    assert line == ("baseline, σ = 0.2", "10.0 (1 seed)", "110.0 (1 seed)",
                    "100.0, too few seeds to tell")  # fmt: skip


def test_the_page_says_at_once_what_came_out(tmp_path: Path) -> None:
    one = _study(tmp_path / "one", [10.0, 11.0, 12.0])
    two = _study(tmp_path / "the other", [110.0, 111.0, 112.0])
    text = io.StringIO()
    compare.run(Compare(one, two, tmp_path / "out"), Console(file=text, width=300))
    assert "higher in 1 of these, lower in 0, and no difference can be told in 0" in text.getvalue()
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Of 1 group both have 1. The second&#39;s final return is higher in 1" in page
    assert f"windward compare {one} &#39;{two}&#39; --out" in page


def test_groups_of_both_come_first_and_only_their_curves_are_drawn(tmp_path: Path) -> None:
    one, two = _study(tmp_path / "one", [1.0, 2.0]), _study(tmp_path / "two", [3.0, 4.0])
    for folder, others in ((one, ["only here"]), (two, ["only there"])):
        summary = compare.read(folder)
        added = [{"group": name, "runs": [{"final_return": 5.0}]} for name in others]
        summary["groups"] = added + summary["groups"]
        (folder / "summary.json").write_text(json.dumps(summary))
        text = (folder / "curves.csv").read_text()
        (folder / "curves.csv").write_text(text + f"{others[0]},0,10,5.0\n")
    lines = compare.numbers(compare.read(one), compare.read(two))
    assert [line.name for line in lines] == ["baseline, σ = 0.2", "only here", "only there"]
    compare.run(Compare(one, two, tmp_path / "out"), Console(quiet=True))
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count("application/json") == 1
    assert '"name":"one"' in page


def test_results_of_different_kinds_are_not_called_the_same(tmp_path: Path) -> None:
    one = _study(tmp_path / "one", [10.0, 20.0])
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "summary.json").write_text(json.dumps({"slope": 0.5}))
    text = io.StringIO()
    compare.run(Compare(one, tmp_path / "two", tmp_path / "out"), Console(file=text, width=200))
    assert "no number in common" in text.getvalue()
    assert "No number differs" not in text.getvalue()


def test_the_same_is_told_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = _study(tmp_path / "one", [10.0, 20.0])
    main(["compare", str(one), str(one), "--out", str(tmp_path / "out")])
    assert "15.0 (2 seeds)" in capsys.readouterr().out


def test_a_folder_without_a_result_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"there is no summary.json in"):
        compare.read(tmp_path)
    (tmp_path / "summary.json").write_text("[")
    with pytest.raises(ValueError, match="is damaged"):
        compare.read(tmp_path)
