"""A page from any summary: each shape that studies write becomes a table."""

import json
from pathlib import Path

import pytest

from windward.cli import main
from windward.figures import panels
from windward.studies import summary_page


def test_rows_by_name_lists_of_rows_and_nested_ones_become_tables() -> None:
    by_name = {"LQR": {"mean": 0.0, "hyper": {}}, "GPC": {"mean": 1.0, "hyper": {"eta": 0.5}}}
    (table,) = summary_page.tables("headroom", by_name)
    assert list(table.columns) == ["", "mean", "hyper"]
    assert table.rows == [["LQR", 0.0, ""], ["GPC", 1.0, "eta 0.5"]]
    (table,) = summary_page.tables("slopes", [{"method": "BPC", "slope": 0.7}, {"method": "x"}])
    assert table.rows == [["BPC", 0.7], ["x", None]]
    deep = {"2x1": {"a": {"mean": 1.0, "interval": [0, 1], "runs": 3}}}
    (table,) = summary_page.tables("headroom", deep)
    assert table.title == "headroom: 2x1"
    assert table.rows == [["a", 1.0, "0, 1", 3]]
    assert not list(summary_page.tables("found", "text"))


def test_the_page_has_tables_figures_and_how_it_was_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = {
        "command": "windward run lds-low", "settings": {"T": 10}, "versions": {"numpy": "2"},
        "headroom": {"GPC": {"mean": 0.75}},
    }  # fmt: skip
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    panels(1)[0].savefig(tmp_path / "costs.png")
    (tmp_path / "report.html").write_text("the study's own")
    main(["report", str(tmp_path)])
    assert "summary.html" in capsys.readouterr().out
    assert (tmp_path / "report.html").read_text() == "the study's own"
    page = (tmp_path / "summary.html").read_text()
    assert "data:image/png" in page
    assert "0.7500" in page
    assert "windward run lds-low" in page


def test_numbers_of_their_own_and_the_commit_are_shown(tmp_path: Path) -> None:
    summary = {
        "command": "windward run x", "settings": {"how": {"seeds": 3}, "winds": ["a", "b"]},
        "commit": "abc123", "slope": 0.5, "each": [0.25, 0.75], "failed": {}, "found": "It holds.",
    }  # fmt: skip
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    page = summary_page.write(tmp_path, "x", "What was asked.").read_text()
    assert '<td>slope</td><td class="number">0.5000</td>' in page
    assert "0.25, 0.75" in page
    assert "abc123" in page
    assert "how.seeds: 3" in page
    assert page.index("What was asked.") < page.index("It holds.")


def test_a_folder_without_a_summary_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["report", str(tmp_path)])
    assert "there is no summary.json" in capsys.readouterr().err
