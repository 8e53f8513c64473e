"""The examples and the code of the pages run, and what they name exists."""

import re
import runpy
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import windward as ww

ROOT = Path(__file__).parents[1]
PAGES = ["own-loop", "signals/pd1", "signals/pd2", "signals/pd3", "signals/own"]
SHORT = {"20_000": "110", "2_000": "300"}  # what is tested is that it runs


def blocks_of(page: str) -> list[str]:
    """The Python blocks of a page, with less to do."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)
    for long, short in SHORT.items():
        blocks = [block.replace(long, short) for block in blocks]
    return blocks


def run(blocks: list[str]) -> dict[str, object]:
    """One after the other, as a reader would."""
    scope: dict[str, object] = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, "page", "exec"), scope)
    return scope


def example(name: str) -> dict[str, object]:
    return runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages write files where they are."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def quick_sb3(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One episode for each evaluation, and one thread for small networks."""
    evaluation = pytest.importorskip("stable_baselines3.common.evaluation")
    torch = pytest.importorskip("torch")
    shorter = partial(evaluation.evaluate_policy, n_eval_episodes=1)
    monkeypatch.setattr(evaluation, "evaluate_policy", shorter)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# The robot's deadline is a few milliseconds: on a busy machine it may well be missed.
@pytest.mark.filterwarnings("ignore:the signal is late")
@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs(page: str) -> None:
    scope = run(blocks_of(f"docs/{page}.md"))
    assert any(isinstance(each, ww.RobustWrapper | ww.RobustPolicy) for each in scope.values())


def test_the_signal_of_the_page_sees_the_wind() -> None:
    scope = run(blocks_of("docs/signals/own.md")[:1])
    robust: ww.RobustWrapper = scope["robust"]  # type: ignore[assignment]
    robust.reset(seed=0)
    for _ in range(12):  # no faster than the pendulum's limit, which the page leaves out
        *_, info = robust.step(np.zeros(1, np.float32))
        wind = info["disturbance"]["qvel"]
        np.testing.assert_allclose(info["windward"]["w_hat"], wind, atol=1e-5)


def test_the_simulator_of_the_page_is_the_environment() -> None:
    scope = run(blocks_of("docs/signals/pd3.md"))
    robust: ww.RobustWrapper = scope["robust"]  # type: ignore[assignment]
    robust.reset(seed=0)
    for _ in range(30):
        *_, info = robust.step(robust.action_space.sample())
        np.testing.assert_allclose(info["windward"]["w_hat"], 0, atol=1e-6)
    assert not robust.faults


@pytest.mark.slow
@pytest.mark.usefixtures("quick_sb3")
def test_the_code_of_the_quickstart_runs() -> None:
    run(blocks_of("docs/quickstart.md"))


def test_the_quickstart_without_models_of_others_runs() -> None:
    """The blocks that need neither Stable-Baselines3 nor a model of it."""
    mine = "import gymnasium as gym\nimport windward as ww\nenv = gym.make('Pendulum-v1')\n"
    others = ("stable_baselines3", "windward.adapt.sb3", "model", "TD3", "PPO")
    blocks = [b for b in blocks_of("docs/quickstart.md") if not any(name in b for name in others)]
    scope = run([mine, *blocks])
    assert len(blocks) >= 5
    assert "correction" in scope["info"]["windward"]  # type: ignore[index]


@pytest.mark.usefixtures("quick_sb3")
def test_the_first_lines_of_the_readme_run() -> None:
    blocks = [block for block in blocks_of("README.md") if "RobustWrapper" in block]
    assert len(blocks) == 2
    for block in blocks:
        run([block])


def test_the_page_of_the_diagnosis_runs() -> None:
    found = run(blocks_of("docs/diagnosis.md"))["d"]
    assert isinstance(found, ww.Diagnosis)
    assert set(found.changes) == {"mass:torso"}
    assert Path("page.html").exists()


def test_the_page_of_the_recovery_runs() -> None:
    env = run(blocks_of("docs/recovery.md"))["env"]
    assert isinstance(env, ww.RobustWrapper)
    assert env.diagnosis is not None
    assert set(env.diagnosis.changes) == {"mass"}
    assert "matching wins" in env.decisions[0]
    assert not env.faults


def test_a_loop_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gym, "make", partial(gym.make, max_episode_steps=120))
    scope = example("own_loop.py")
    policy, again = scope["policy"], scope["again"]
    assert isinstance(policy, ww.RobustPolicy)
    assert isinstance(again, ww.RobustPolicy)
    assert policy.diagnosis is not None
    assert again.diagnosis is not None
    assert set(policy.diagnosis.changes) == set(again.diagnosis.changes) == {"mass"}
    assert again.decisions == policy.decisions
    assert not policy.faults


def test_discrete_actions() -> None:
    env = example("discrete.py")["env"]
    assert isinstance(env, ww.RobustWrapper)
    assert np.abs(env.M).max() > 0
    assert not env.faults


@pytest.mark.usefixtures("quick_sb3")
def test_a_model_of_stable_baselines() -> None:
    env = example("sb3_model.py")["env"]
    assert isinstance(env, ww.RobustWrapper)
    assert np.abs(env.M).max() > 0


def test_d4pg_with_the_module_on() -> None:
    agent = example("train_d4pg.py")["agent"]
    assert isinstance(agent, ww.agents.D4PG)
    assert np.abs(agent.M).max() > 0


def test_every_example_is_tested() -> None:
    names = {path.name for path in (ROOT / "examples").glob("*.py")}
    assert names == set(re.findall(r'example\("(\w+\.py)"\)', Path(__file__).read_text()))


PAGES_WITH_LINKS = sorted(
    str(path.relative_to(ROOT)) for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
)


@pytest.mark.parametrize("page", PAGES_WITH_LINKS)
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text()
    for link in re.findall(r"\]\(([^)]+)\)", text):
        if link.startswith("http"):
            continue
        name, _, anchor = link.partition("#")
        target = (ROOT / page).parent / name if name else ROOT / page
        assert target.exists(), link
        if anchor:
            titles = re.findall(r"^#+ (.*)$", target.read_text(), flags=re.MULTILINE)
            anchors = [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles]
            assert anchor in anchors, link


def test_the_benchmark_has_the_numbers_that_the_pages_name() -> None:
    source = (ROOT / "src" / "windward" / "bench" / "overhead.py").read_text()
    for page in (ROOT / "docs" / "signals").glob("*.md"):
        for name in re.findall(r"`(\w+_over_\w+|latency)`", page.read_text()):
            assert f'"{name}"' in source, (page, name)
