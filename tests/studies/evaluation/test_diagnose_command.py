"""`windward diagnose`: what it prints and writes, and one clear line for what does not fit."""

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import windward as ww
from windward.cli import main
from windward.diagnosis import Change, Diagnosis, load_log
from windward.studies.evaluation import diagnose as command
from windward.studies.evaluation.diagnose import Diagnose, changes_of, default_out

HEAVY = "diagnose --model random --env Pendulum-v1 --steps 60 --change mass=1.3"


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


def test_it_prints_what_changed_and_writes_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(f"{HEAVY} --out {tmp_path}".split())
    out = said(capsys)
    assert "Pendulum-v1: what changed" in out
    assert "│ mass │ x1.3" in out
    assert "unexplained" in out
    assert f"page: {tmp_path / 'report.html'}" in out
    assert "Pendulum-v1: mass changed" in (tmp_path / "report.html").read_text()
    found = Diagnosis.load(tmp_path / "diagnosis.npz")
    assert found.values == pytest.approx({"mass": 1.3}, rel=1e-3)
    assert (found.steps, found.episodes) == (60, 1)


def test_json_is_all_that_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(f"{HEAVY} --json --out {tmp_path}".split())
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert found["changes"]["mass"]["factor"] == pytest.approx(1.3, rel=1e-3)
    assert found["env"] == "Pendulum-v1"
    assert captured.err == ""
    assert (tmp_path / "report.html").is_file()


def test_a_log_of_a_run_gives_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flight = tmp_path / "flight.npz"
    # The last episode is cut off by the number of steps, and is in the log all the same.
    main(f"{HEAVY} --episodes 2 --steps 230 --record {flight} --json --out {tmp_path}".split())
    first = json.loads(capsys.readouterr().out)
    assert [each.steps for each in load_log(flight).episodes] == [200, 30]
    main(f"diagnose --log {flight} --env Pendulum-v1 --json --out {tmp_path}".split())
    again = json.loads(capsys.readouterr().out)
    del first["seconds"], again["seconds"]
    assert again == first


def test_a_policy_a_disturbance_and_chosen_parameters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(
        "diagnose --model shipped --env InvertedPendulum-v5 --disturbance bias:value=0.2 "
        f"--channel mass --steps 60 --parameters mass --out {tmp_path}".split()
    )
    assert "│ mass │ x1.2" in said(capsys)
    found = Diagnosis.load(tmp_path / "diagnosis.npz")
    assert {name.partition(":")[0] for name in found.factors} == {"mass"}


def test_flags_of_words_may_be_repeated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(
        f"{HEAVY} delay=1 --change gravity=0.5 --parameters mass --parameters gravity delay --json "
        f"--out {tmp_path}".split()
    )
    found = json.loads(capsys.readouterr().out)
    assert set(found["factors"]) == {"mass", "gravity"}
    assert found["changes"]["gravity"]["factor"] == pytest.approx(0.5, rel=0.01)
    assert found["changes"]["delay"]["factor"] == 1


def test_a_learned_simulator_from_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    learned = ww.fit_simulator(
        "Pendulum-v1", lambda x: x[:1], steps=1_000, updates=1_500, members=1
    )
    ww.save_simulator(learned, tmp_path / "learned.npz")
    main(
        f"diagnose --model random --env Pendulum-v1 --steps 60 --json --out {tmp_path} "
        f"--simulator {tmp_path / 'learned.npz'}".split()
    )
    found = json.loads(capsys.readouterr().out)
    assert {name.partition(":")[0] for name in found["factors"]} == {"response", "offset"}


def test_what_stays_unexplained_is_printed_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(*_: Any, **__: Any) -> Diagnosis:
        change = Change(1.3, 1.2, 1.4)
        return Diagnosis({}, {"[b]": change}, None, 0.4, suspects={"[b]": change}, env_id="[x]")

    monkeypatch.setattr(command, "diagnose", found)
    main(f"{HEAVY} --out {tmp_path}".split())
    out = said(capsys)
    assert out.startswith("40 % of the deviation stays unexplained")
    assert "[x]: unreliable: too much" in out
    assert "│ [b] │ x1.30 │ 1.20 to 1.40 │" in out
    assert out.count("stays unexplained") == 2  # the other is the title of the table


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("", "give either model (such as shipped, or random) or log"),
        ("--model random --log x.npz", "give either model"),
        ("--log x.npz --steps 50 --seed 1", "leave out steps, seed"),
        ("--log x.npz", "there is no file 'x.npz'"),
        ("--model none.zip", "there is no file 'none.zip'"),
        ("--model random --channel qvel", "there is none: give a disturbance too"),
        ("--model random --change mass", "a change is NAME=VALUE, such as mass:torso=1.3"),
        ("--model random --change mass=x", "got 'mass=x'"),
        ("--model random --change mass=2 mass=3", "change 'mass' is given twice"),
        ("--model random --change mas=2", "knows no 'mas' here"),
        ("--model random --change mass=-1", "must be greater than 0"),
        ("--model random --parameters gain", "parameters has no 'gain' here"),
        ("--model random --steps 3", "steps must be an integer of at least 10; got 3"),
        ("--model random --episodes 0", "episodes must be an integer of at least 1"),
        ("--model random --simulator x.npz", "there is no file 'x.npz'"),
        ("--model random --record nowhere/x.npz", "there is no folder 'nowhere'"),
        ("--model shipped:CartPole-v1", "is of another environment"),
        ("--model random --out /proc/nowhere", "out must be a folder"),
        ("--model random --env Pendlum-v1", "Did you mean: `Pendulum`"),
    ],
)
def test_what_does_not_fit_ends_in_one_clear_line(
    flags: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(f"diagnose --env Pendulum-v1 --out {tmp_path} {flags}".split())
    assert end.value.code == 2
    err = " ".join(capsys.readouterr().err.split())
    assert err.startswith("error: ")
    assert message in err
    assert not list(tmp_path.iterdir())


def test_a_log_of_another_environment_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    env = ww.Recorder(gym.make("Pendulum-v1"), tmp_path / "flight.npz")
    env.reset(seed=0)
    for _ in range(12):
        env.step(env.action_space.sample())
    env.close()
    with pytest.raises(SystemExit):
        main(f"diagnose --log {tmp_path / 'flight.npz'} --env CartPole-v1 --out {tmp_path}".split())
    assert "error: the log is of Pendulum-v1" in capsys.readouterr().err


def test_help_has_the_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["diagnose", "--help"])
    assert end.value.code == 0
    out = said(capsys)
    assert "windward diagnose --log flight.npz --env Hopper-v5" in out
    assert "--disturbance bias:value=0.1 --channel mass" in out


def test_the_default_folder_is_named_after_the_environment() -> None:
    assert default_out(Diagnose("Hopper-v5")) == Path("out/diagnose/Hopper-v5")
    assert default_out(Diagnose("windward/NoisyHopper-v0")) == Path(
        "out/diagnose/windward-NoisyHopper-v0"
    )
    assert changes_of(()) == {}


def test_help_shows_how_to_write_a_disturbance_and_a_change(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["diagnose", "--help"])
    out = said(capsys)
    assert "sine:amp=3,period=60" in out
    assert "mass:torso=1.3 gain=0.8 delay=1" in out
    assert out.count("windward list --env ID") >= 3
