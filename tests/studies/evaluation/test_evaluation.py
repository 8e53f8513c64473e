"""`evaluate`: base and adapted meet the same episodes, and reports say what was measured."""

import csv
import io
import json
import shlex
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import scipy.stats
import tyro
from rich.console import Console

from windward import policies
from windward.envs import Disturbed
from windward.studies.evaluation import evaluate as evaluation
from windward.studies.evaluation import numbers as evaluation_numbers
from windward.studies.evaluation import report as evaluation_report
from windward.studies.evaluation.episodes import Actor, begin, play
from windward.studies.evaluation.evaluate import Evaluate, Evaluation, Runs, evaluate
from windward.studies.evaluation.loading import load_simulator_of
from windward.studies.evaluation.numbers import (
    Difference,
    as_json,
    halves,
    intervals,
    numbers,
    text,
    verdict,
    worst_tenth,
)
from windward.studies.runs.study_folder import STUDY
from windward.studies.stats import Interval

PENDULUM = ("shipped", "Pendulum-v1", "uniform:bound=0.2", "qvel")
CARTPOLE = ("shipped", "CartPole-v1", "uniform:bound=0.1", "qvel")
SMALL: dict[str, Any] = {"seeds": 2, "episodes": 3, "max_steps": 12}


def test_without_a_correction_adapted_is_base_to_the_bit() -> None:
    found = evaluate(*PENDULUM, **SMALL, eta=0.0, sigma=0.0, learner="mf-gpc", guard=False)
    base, adapted = found.runs["base"], found.runs["adapted"]
    np.testing.assert_array_equal(adapted.returns, base.returns)
    assert not np.array_equal(found.runs["nominal"].returns, base.returns)
    assert len(np.unique(base.returns)) == 6  # each episode has a start and a wind of its own
    assert not adapted.M_norm.any()


def test_discrete_adapted_is_base_to_the_bit_while_M_is_0() -> None:
    found = evaluate(
        *CARTPOLE, **SMALL | {"max_steps": 100}, eta=0.0, learner="mf-gpc", guard=False
    )
    base, adapted = found.runs["base"], found.runs["adapted"]
    np.testing.assert_array_equal(adapted.returns, base.returns)
    np.testing.assert_array_equal(adapted.lengths, base.lengths)
    assert list(found.runs) == ["nominal", "base", "base, greedy", "adapted"]


def test_a_greedy_base_policy_is_shown_once() -> None:
    found = evaluate(*CARTPOLE, **SMALL, greedy=True)
    assert list(found.runs) == ["nominal", "base", "adapted"]


def test_exploration_and_learning_change_what_happens_and_are_repeatable() -> None:
    first, again = (
        evaluate(*PENDULUM, **SMALL, eta=1e-3, every_episodes=1, learner="mf-gpc", guard=False)
        for _ in range(2)
    )
    assert (first.runs["adapted"].returns != first.runs["base"].returns).all()
    assert first.runs["adapted"].M_norm.all()
    assert first.signal == "pd3"
    for policy, runs in first.runs.items():
        for one, other in zip(runs, again.runs[policy], strict=True):
            np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(first.trace.w_hat, again.trace.w_hat)


def test_a_seed_means_the_same_wherever_the_seeds_begin() -> None:
    both = evaluate(*PENDULUM, **SMALL, eta=1e-3, every_episodes=1, learner="mf-gpc", guard=False)
    second = evaluate(
        *PENDULUM,
        **SMALL | {"seeds": 1},
        first_seed=1,
        eta=1e-3,
        every_episodes=1,
        learner="mf-gpc",
        guard=False,
    )
    assert second.seeds == (1,)
    for policy, runs in second.runs.items():
        np.testing.assert_array_equal(runs.returns[0], both.runs[policy].returns[1])


def test_M_stays_when_frozen() -> None:
    found = evaluate(
        *PENDULUM,
        **SMALL,
        eta=1e-3,
        every_episodes=1,
        freeze_after=1,
        learner="mf-gpc",
        guard=False,
    )
    norm = found.runs["adapted"].M_norm
    np.testing.assert_array_equal(norm[:, 1:], norm[:, :1].repeat(2, axis=1))
    assert norm.all()


def test_the_trace_is_of_the_first_seed_and_shows_the_wind() -> None:
    found = evaluate(*PENDULUM, **SMALL, eta=1e-3, every_episodes=1, learner="mf-gpc", guard=False)
    trace = found.trace
    assert trace.episode.tolist() == [0] * 12 + [1] * 12 + [2] * 12
    np.testing.assert_allclose(trace.w_hat[:, 1], trace.wind["qvel"][:, 0], atol=1e-6)
    assert trace.M.shape == (4, np.size(found.M[0]))
    assert not trace.correction[0].any()
    assert trace.correction[1:].any()


def test_an_environment_that_disturbs_itself_needs_no_disturbance() -> None:
    found = evaluate("shipped:InvertedPendulum-v5", "windward/SinePendulum-v0", **SMALL)
    assert list(found.runs) == ["base", "adapted"]


class Early(gym.Wrapper[Any, Any, Any, Any]):
    """Ends after some steps."""

    see_through = True

    def __init__(self, env: gym.Env, steps: int) -> None:
        super().__init__(env)
        self.steps = steps

    def step(self, action: Any) -> Any:
        self.steps -= 1
        x, reward, terminated, truncated, info = self.env.step(action)
        return x, reward, terminated, truncated or self.steps < 0, info


def test_starts_and_wind_do_not_depend_on_the_episodes_before() -> None:
    def second_episode(steps: int) -> list[Any]:
        env = Early(gym.make("Pendulum-v1"), steps)
        disturbed = Disturbed(env, "uniform:bound=1,from_episode=1", "qvel")
        actor = Actor(policies.load("Pendulum-v1"), env.action_space)
        play(disturbed, actor, 5, 0)
        env.steps = 100
        x = begin(disturbed, 5, 1)
        told = [disturbed.step(np.zeros(1))[4]["disturbance"]["qvel"] for _ in range(3)]
        return [x, *told]

    short, long = second_episode(3), second_episode(9)
    np.testing.assert_array_equal(np.concatenate(short), np.concatenate(long))
    assert np.concatenate(short[1:]).all()  # from_episode=1: the episodes are counted


def sometimes(x: Any, u: Any, reward: float, x_next: Any) -> Any:
    if x[0] > 0.5:
        raise RuntimeError("a sensor is lost")
    return x_next - x


def test_faults_are_counted_and_told_and_do_not_end_the_run() -> None:
    found = evaluate(*PENDULUM, sometimes, **SMALL | {"seeds": 3})
    assert found.signal == "own"
    assert found.faults["signal"] > 0
    assert any("a sensor is lost" in note for note in found.notes)


# Numbers.


def made_up(base: Any, adapted: Any) -> Evaluation:
    def runs(returns: Any) -> Runs:
        array = np.asarray(returns, float)
        return Runs(array, array, np.zeros_like(array), np.zeros_like(array))

    both = {"base": runs(base), "adapted": runs(adapted)}
    return Evaluation(both, tuple(range(7, 7 + len(base))), "pd3", "", [], [], {}, (), None)  # type: ignore[arg-type]


def test_numbers_by_hand() -> None:
    found = made_up([[0, 2, 4, 6], [1, 1, 1, 1]], [[0, 2, 5, 7], [1, 1, 4, 4]])
    last, every = halves(found).items()
    assert (last[0], every[0]) == ("last 2 of 4 episodes", "all 4 episodes")
    row = last[1].rows["base"]
    assert (row.mean.value, row.tenth.value, row.worst, row.worst_seed) == (3.0, 1.0, 1.0, 8)
    assert last[1].difference.each.tolist() == [1.0, 3.0]
    half = scipy.stats.t.ppf(0.975, 1)  # the standard error is 1
    assert last[1].difference.mean == pytest.approx((2.0, 2 - half, 2 + half))
    assert every[1].difference.mean.value == 1.0


def test_the_worst_tenth_is_of_all_episodes() -> None:
    returns = np.arange(40.0).reshape(4, 10)
    assert worst_tenth(returns) == 1.5
    np.testing.assert_array_equal(worst_tenth(np.stack([returns, -returns])), [1.5, -37.5])


def test_the_interval_of_a_paired_difference_is_that_of_the_pairs() -> None:
    luck = np.random.default_rng(0).normal(0, 100, (10, 4))
    found = numbers(made_up(luck, luck + 1.0), slice(None))
    assert found.difference.mean.low == pytest.approx(1.0)
    assert found.difference.tenth.high == pytest.approx(1.0)
    assert found.rows["base"].mean.high - found.rows["base"].mean.low > 10


@pytest.mark.parametrize("seeds", [3, 8])
def test_where_adapting_does_nothing_the_verdict_is_seldom_wrong(
    seeds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """5 % of the time; by the bootstrap it was 29 % with 3 seeds, 12 % with 8."""
    point = Interval(0.0, 0.0, 0.0)
    monkeypatch.setattr(evaluation_numbers, "seed_interval", lambda *_: point)  # of worst tenths
    rng = np.random.default_rng(0)
    draws = [rng.normal(0, 1, (2, seeds, 1)) for _ in range(600)]
    verdicts = [verdict(numbers(made_up(*each), slice(None)).difference, "all") for each in draws]
    wrong = sum("adapting helped" in each or "adapting cost" in each for each in verdicts)
    assert 0.02 < wrong / len(draws) < 0.08


def test_captions_say_which_interval_is_which_and_that_few_seeds_make_it_narrow() -> None:
    assert "Student's of the paired differences for the mean of adapted - base" in intervals(20)
    assert "the percentile bootstrap for all else" in intervals(20)
    assert "too narrow" not in intervals(10)
    assert intervals(9).endswith("which is too narrow with fewer than 10")
    assert intervals(1) == "one seed has no intervals"


@pytest.mark.parametrize(
    ("interval", "each", "expected"),
    [
        ((2, 1, 3), [1, 3], "adapting helped"),
        ((-2, -3, -1), [-1, -3], "adapting cost more than it gained"),
        ((0, -1, 1), [1, -1], "no difference is shown"),
        ((0, 0, 0), [0, 0], "adapting changed nothing"),
        ((2, 2, 2), [2], "no interval can be given for one seed"),
        ((float("nan"),) * 3, [1, float("nan")], "no interval can be given"),
    ],
)
def test_the_verdict_says_what_the_interval_does(
    interval: tuple[float, ...], each: list[float], expected: str
) -> None:
    found = Difference(Interval(*interval), Interval(*interval), np.array(each))
    assert expected in verdict(found, "all 4 episodes")


def test_text_of_numbers() -> None:
    assert text(Interval(-18.04, -53.2, 0.887), 8) == "-18.0 [-53.2, 0.9]"
    assert text(Interval(4321.9, 4000.1, 5000.0), 8) == "4322 [4000, 5000]"
    assert text(Interval(0.0, 0.0, 0.0), 8) == "0 [0, 0]"
    assert text(Interval(2.0, 2.0, 2.0), 1) == "2.00"


def test_a_return_that_is_not_finite_stays_visible() -> None:
    found = halves(made_up([[1, 2], [3, 4]], [[1, np.nan], [3, 4]]))
    for each in found.values():
        assert np.isnan([*each.difference.mean, *each.difference.tenth]).all()
        assert np.isnan(each.rows["adapted"].worst)
    assert as_json(found)["all 2 episodes"]["adapted_minus_base"]["mean"]["value"] is None


def test_of_one_seed_no_interval_is_written() -> None:
    found = as_json(halves(made_up([[1, 2]], [[2, 4]])))
    told = found["all 2 episodes"]["adapted_minus_base"]["mean"]
    assert told == {"value": 1.5, "interval": [None, None]}


# Files.

SETTINGS = Evaluate(*PENDULUM, seeds=2, episodes=3, max_steps=12, eta=1e-3, learner="mf-gpc")


def test_files_hold_what_was_measured(tmp_path: Path) -> None:
    settings = replace(SETTINGS, out=tmp_path)
    console = Console(record=True, width=120, file=io.StringIO())
    summary = evaluation_report.run(settings, console)
    with (tmp_path / "episodes.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 * 2 * 3
    for policy, said in summary["numbers"]["all 3 episodes"]["policies"].items():
        mine = [float(row["return"]) for row in rows if row["policy"] == policy]
        assert np.mean(mine) == pytest.approx(said["mean"]["value"])
        assert min(mine) == pytest.approx(said["worst_tenth"]["value"])
    assert len((tmp_path / "trace.csv").read_text().splitlines()) == 1 + 36
    assert (tmp_path / "evaluation.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((tmp_path / "summary.json").read_text()) == json.loads(json.dumps(summary))
    page, terminal = (tmp_path / "report.html").read_text(), console.export_text()
    for scope in summary["numbers"].values():
        for said in (*scope["policies"].values(), scope["adapted_minus_base"]):
            shown = text(Interval(said["mean"]["value"], *said["mean"]["interval"]), 2)
            assert shown in page
            assert shown in terminal
    assert (
        "uniform:bound=0.2 --channel qvel --seeds 2 --episodes 3 --learner mf-gpc --eta 0.001"
        in page
    )
    for shown in (page.replace("&#39;", "'"), " ".join(terminal.split())):
        assert f"[ ]: {intervals(2)}" in shown
        assert "Student's 95 % interval of the pairs" in shown
    assert "gymnasium" in page
    assert not list(tmp_path.glob("*.partial"))
    assert not (tmp_path / evaluation_report.UNFINISHED).exists()


def test_a_mistyped_argument_holds_no_folder(tmp_path: Path, console: Console) -> None:
    settings = Evaluate(*PENDULUM[:3], "qvl", seeds=1, episodes=1, max_steps=5, out=tmp_path)
    with pytest.raises(ValueError, match="qvl"):
        evaluation_report.run(settings, console)
    evaluation_report.run(replace(settings, channel="qvel"), console)
    with pytest.raises(ValueError, match="holds results with other settings"):
        evaluation_report.run(replace(settings, channel="qvel", h=3), console)


def test_the_learner_and_what_was_decided_are_told(tmp_path: Path) -> None:
    wind = "bias:value=0.2"
    settings = Evaluate(
        "shipped", "Pendulum-v1", wind, "qvel", "pd3", seeds=1, episodes=1, max_steps=90,
        learner="quadratic", out=tmp_path,
    )  # fmt: skip
    console = Console(record=True, width=300, file=io.StringIO())
    summary = evaluation_report.run(settings, console)
    assert summary["learner"] == "quadratic"
    (said,) = summary["decisions"]
    assert any("began to adapt" in each for each in said)
    page, terminal = (tmp_path / "report.html").read_text(), console.export_text()
    assert "learner quadratic" in terminal
    for each in said[:3]:
        assert each in page
        assert each in terminal


def test_one_seed_and_one_episode_are_enough_for_a_page(tmp_path: Path, console: Console) -> None:
    settings = replace(SETTINGS, seeds=1, episodes=1, out=tmp_path)
    summary = evaluation_report.run(settings, console)
    assert list(summary["numbers"]) == ["all 1 episodes"]
    assert "no interval can be given for one seed" in (tmp_path / "report.html").read_text()


def test_an_interrupt_leaves_the_finished_seeds(
    tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(env: Any, actor: Actor, seed: int, *rest: Any) -> Any:
        if seed == 1:
            raise KeyboardInterrupt
        return whole(env, actor, seed, *rest)

    whole = evaluation.play_adapted
    settings = replace(SETTINGS, out=tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(evaluation, "play_adapted", stop)
        with pytest.raises(KeyboardInterrupt):
            evaluation_report.run(settings, console)
    left = tmp_path / evaluation_report.UNFINISHED
    there = {path.name for path in tmp_path.iterdir() if not path.name.startswith(".")}
    assert there == {left.name, STUDY}
    rows = left.read_text().splitlines()
    assert len(rows) == 1 + 3 * 3  # of the first seed alone, which has all its policies
    evaluation_report.run(settings, console)
    assert set(rows) < set((tmp_path / "episodes.csv").read_text().splitlines())
    assert not left.exists()


@pytest.mark.parametrize(
    ("env", "shown"),
    [
        ("Pendulum-v1", "Pendulum-v1, no disturbance added"),
        ("windward/SinePendulum-v0", "windward/SinePendulum-v0, its own disturbance"),
    ],
)
def test_a_disturbance_is_claimed_where_there_is_one(
    env: str, shown: str, tmp_path: Path, console: Console
) -> None:
    model = "shipped" if env == "Pendulum-v1" else "shipped:InvertedPendulum-v5"
    settings = Evaluate(model, env, seeds=1, episodes=1, max_steps=5, out=tmp_path)
    evaluation_report.run(settings, console)
    page = (tmp_path / "report.html").read_text()
    assert f"<title>{shown}: base against adapted</title>" in page
    assert "the base policy in the disturbance" not in page


def test_the_command_makes_the_settings_again() -> None:
    settings = replace(SETTINGS, disturbance="bias:value=1 + uniform:bound=0.2", greedy=True)
    assert evaluation_report.command_of("windward evaluate", settings) == (
        "windward evaluate --model shipped --env Pendulum-v1 --disturbance 'bias:value=1 + "
        "uniform:bound=0.2' --channel qvel --seeds 2 --episodes 3 --learner mf-gpc --eta 0.001 "
        "--max-steps 12 --greedy"
    )


OTHERS: dict[str, Any] = {
    "model": "out/a b/model.zip", "env": "CartPole-v1", "disturbance": "bias:value=1 + uniform:",
    "channel": "action", "signal": "pd1", "seeds": 3, "episodes": 4, "first_seed": 9,
    "learner": "advantage", "h": 3, "sigma": 0.2, "eta": 0.01, "every_episodes": 2,
    "weight_decay": 0.1, "freeze_after": 1, "max_steps": 11, "algo": "PPO",
    "vec_normalize": Path("of/it.pkl"), "simulator": "learned.npz",
    "logits": "module:function", "greedy": True,
}  # fmt: skip
"""another value for each setting but the folder"""


def test_the_command_is_one_that_gives_the_settings_again() -> None:
    assert set(OTHERS) == {field.name for field in fields(Evaluate)} - {"out"}
    for settings in (SETTINGS, Evaluate(**OTHERS)):
        command = evaluation_report.command_of("windward evaluate", settings)
        assert tyro.cli(Evaluate, args=shlex.split(command)[2:]) == settings


def test_folders_of_different_settings_differ() -> None:
    every = [SETTINGS, *(replace(SETTINGS, **{name: each}) for name, each in OTHERS.items())]
    folders = {evaluation_report.default_out(each) for each in every}
    assert len(folders) == len(every)
    digest = evaluation_report.default_out(SETTINGS).name[-10:]
    assert evaluation_report.default_out(replace(SETTINGS, out=Path("elsewhere"))) == Path(
        f"out/evaluate/Pendulum-v1-shipped-uniform-bound=0.2-qvel-auto-{digest}"
    )
    named = evaluation_report.default_out(replace(SETTINGS, model="out/a b/model.zip"))
    assert named.name.startswith("Pendulum-v1-model-uniform-bound=0.2-qvel-auto-")


def test_a_folder_with_results_of_other_settings_is_refused(
    tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = replace(SETTINGS, out=tmp_path, seeds=1, episodes=1)
    first = evaluation_report.run(settings, console)
    assert evaluation_report.run(settings, console)["numbers"] == first["numbers"]
    monkeypatch.setattr(evaluation_report, "evaluate", pytest.fail)
    with pytest.raises(ValueError, match=r"eta was 0\.001, now 0\.002.*give another --out"):
        evaluation_report.run(replace(settings, eta=2e-3), console)


# Bad input.


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": 0}, "seeds must be an integer of at least 1"),
        ({"episodes": 0}, "episodes must be an integer of at least 1"),
        ({"first_seed": -1}, "first_seed must be"),
        ({"max_steps": 0}, "max_steps must be"),
        ({"freeze_after": 3}, "freeze_after must be less than episodes, 3"),
        ({"env_id": "Pendulm-v1"}, "Pendulum"),
        ({"env_id": "nowhere.at_all:Env-v0"}, "nowhere"),
        (
            {"env_id": "Acrobot-v1", "channel": "observation"},
            "no policy for Acrobot-v1 comes with windward",
        ),
        ({"disturbance": "sign:amp=1"}, "there is no disturbance 'sign'"),
        ({"channel": "qvl"}, "there is no channel 'qvl'"),
        ({"channel": None}, "say where to disturb"),
        ({"disturbance": None}, "channel 'qvel' is where a disturbance pushes, and there is none"),
        ({"greedy": True}, "greedy is for discrete actions, those of Pendulum-v1 are Box"),
        ({"signal": "pd4"}, "signal must be one of"),
        ({"signal": "nowhere_at_all:f"}, "cannot be imported"),
        ({"sigma": -1.0, "learner": "mf-gpc"}, "sigma must be"),
        ({"sigma": 0.1}, "sigma= means nothing to learner 'auto'"),
        ({"nonsense": 1, "learner": "mf-gpc"}, "does not take these options"),
        ({"logits": np.zeros}, "logits= is for discrete actions"),
        ({"model": "shipped:Hopper-v5"}, "BasePolicy is of another environment"),
        ({"model": "shipped:Ant-v5"}, "no policy for Ant-v5 comes with windward"),
    ],
)
def test_bad_input_is_refused_before_the_first_episode(
    change: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "play", pytest.fail)
    names = ("model", "env_id", "disturbance", "channel")
    given = dict(zip(names, PENDULUM, strict=True)) | SMALL | change
    with pytest.raises(ValueError, match=message):
        evaluate(**given)


def test_the_first_sentence_says_what_came_out() -> None:
    def said(nominal: float | None, base: float, gain: float, own: bool = False) -> str:
        each = gain + np.array([-1.0, 0.0, 1.0])
        means = {"base": base, "adapted": base + gain}
        means |= {} if nominal is None else {"nominal": nominal}
        rows = {name: SimpleNamespace(mean=SimpleNamespace(value=v)) for name, v in means.items()}
        difference = SimpleNamespace(mean=SimpleNamespace(low=each.min(), high=each.max()))
        found: Any = SimpleNamespace(own_wind=own)
        return evaluation_numbers.outcome(found, SimpleNamespace(rows=rows, difference=difference))  # type: ignore[arg-type]

    assert said(1000, 995, 0) == "Your policy copes already: 995 of 1000."
    assert said(1000, 500, 400).startswith("Recovered 80 %: 500 -> 900 of 1000")
    assert said(1000, 500, -50).startswith("Adapting did harm: 500 -> 450")
    assert "No gain is shown" in said(1000, 500, 0.5)
    assert said(None, 500, 0).startswith("Nothing was disturbed")
    assert "own wind" in said(None, 500, 0, own=True)


def test_progress_is_told_in_lines_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation.Lines, "EVERY", 0.0)
    written = io.StringIO()
    console = Console(file=written, force_terminal=False)
    evaluate("shipped", "Pendulum-v1", seeds=1, episodes=2, max_steps=5, console=console)
    lines = [line for line in written.getvalue().splitlines() if "episodes" in line]
    assert len(lines) == 3  # the last one says nothing new
    assert "1 of 4 episodes, about 0 minutes left" in lines[0]


def test_a_simulator_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"there is no file 'none.npz'; or name an object"):
        load_simulator_of("none.npz", "Pendulum-v1")
    (tmp_path / "physics.py").write_text("mine = {'scale': {'mass': 1.1}}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        assert load_simulator_of("physics:mine", "Pendulum-v1") == {"scale": {"mass": 1.1}}
