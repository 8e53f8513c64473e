"""The picture of costs and regret is drawn without a display."""

import numpy as np
import pytest

import windward as ww
from windward.linear.plots import _smooth

PNG = b"\x89PNG\r\n\x1a\n"
RNG = np.random.default_rng(0)


def run_of(cost):
    fields = dict.fromkeys(ww.linear.Run._fields)
    return ww.linear.Run(**{**fields, "cost": np.asarray(cost)})


@pytest.fixture
def runs():
    return {
        "three seeds": run_of(RNG.uniform(1, 2, (3, 1200))),
        "one run": run_of(RNG.uniform(0, 1, 1200).astype(np.float32)),
    }


@pytest.fixture
def best():
    return ww.linear.BestDAC(M=None, cost=np.full(1200, 0.5), x=None, u=None)


@pytest.fixture(autouse=True)
def no_display(monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)


@pytest.mark.parametrize("with_best", [False, True])
def test_it_writes_a_png(tmp_path, runs, best, with_best):
    path = tmp_path / "picture.png"
    figure = ww.linear.plot(runs, best if with_best else None, path=path, title="a title")
    assert path.read_bytes().startswith(PNG)
    assert path.stat().st_size > 5000
    assert len(figure.axes) == (2 if with_best else 1)
    labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert labels == ["three seeds", "one run"] + ["best fixed M"] * with_best
    assert figure._suptitle.get_text() == "a title"


def test_what_it_draws(runs, best):
    """The last point of each line: a mean of the last 500 costs, and the total regret."""
    figure = ww.linear.plot(runs, best, window=500)
    costs, regrets = figure.axes
    for line, name in zip(costs.lines, runs, strict=False):
        wanted = np.asarray(runs[name].cost)[..., -500:].mean()
        assert line.get_ydata()[-1] == pytest.approx(wanted, rel=1e-5)
        assert line.get_xdata()[-1] == 1199
    assert costs.lines[2].get_ydata() == pytest.approx(0.5)
    for line, name in zip(regrets.lines, runs, strict=False):
        total = np.asarray(runs[name].cost, float).sum(-1).mean() - 600
        assert line.get_ydata()[-1] == pytest.approx(total, rel=1e-5)
    assert len(costs.collections) == 1  # a band for the run with seeds only


def test_running_mean():
    np.testing.assert_allclose(
        _smooth(np.array([1.0, 2.0, 3.0, 4.0, 9.0]), 2), [1, 1.5, 2.5, 3.5, 6.5]
    )
    rows = _smooth(np.array([[1.0, 2.0, 3.0], [3.0, 3.0, 3.0]]), 2)
    np.testing.assert_allclose(rows, [[1, 1.5, 2.5], [3, 3, 3]])


@pytest.mark.parametrize("steps", [1, 2, 30])
def test_short_runs(tmp_path, steps):
    best = ww.linear.BestDAC(M=None, cost=np.ones(steps), x=None, u=None)
    figure = ww.linear.plot({"short": run_of(np.ones(steps))}, best, path=tmp_path / "short.png")
    assert figure.axes[0].lines[0].get_ydata() == pytest.approx(1)


def test_nothing_is_written_without_a_path(tmp_path, monkeypatch, runs):
    monkeypatch.chdir(tmp_path)
    ww.linear.plot(runs)
    assert not list(tmp_path.iterdir())


def test_a_best_of_another_length(runs, best):
    with pytest.raises(ValueError, match="as many steps; got 1200 and 7"):
        ww.linear.plot(runs, best._replace(cost=best.cost[:7]))


def test_a_grid_is_refused():
    """A line is a run or a mean over seeds; which point of a grid is meant must be said."""
    with pytest.raises(ValueError, match="grid"):
        ww.linear.plot({"grid": run_of(np.ones((2, 3, 40)))})
