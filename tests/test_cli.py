"""The command line: help teaches, bad values end in one clear line, JSON is JSON."""

import json

import pytest

from windward.cli import STUDIES, main


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--help"], "demo"),
        (["run", "--help"], "regret-rate"),
        (["run", "lds-low", "--help"], "periods of the sinusoid for tuning"),
        (["bench", "--help"], "NumPy loop"),
    ],
)
def test_help(args: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(args)
    assert end.value.code == 0
    assert expected in " ".join(capsys.readouterr().out.split())


def test_list_names_every_study(capsys: pytest.CaptureFixture[str]) -> None:
    main(["list"])
    out = capsys.readouterr().out
    assert all(study.name in out for study in STUDIES.values())


def test_an_unknown_study_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["run", "lds-lwo"])
    assert end.value.code == 2
    assert "lds-low" in capsys.readouterr().err


def test_a_bad_value_ends_in_one_clear_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["run", "lds-low", "--out", "/proc/nowhere"])
    assert end.value.code == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: out must be a folder")
    assert "Traceback" not in captured.err


def test_bench_prints_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    main(
        ["bench", "linear", "--json", "--seeds", "2", "--T", "50", "--numpy-steps", "20",
         "--repeats", "1"]
    )  # fmt: skip
    assert json.loads(capsys.readouterr().out)["ratio"] > 0
