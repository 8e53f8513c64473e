"""Charts as figures: one colour for a name, bars for few points, one legend for the same names."""

from pathlib import Path

import numpy as np
from matplotlib.colors import to_hex

from windward import figures
from windward.studies import plots
from windward.studies.report import Chart, Curve, Points, joined

X = np.arange(100.0)


def test_a_name_has_one_colour_and_its_dots_have_it_too() -> None:
    charts = [
        Chart("one", "x", "y", [Curve("a", X, X), Curve("b", X, 2 * X)]),
        Chart("two", "x", "y", [Curve("b", X, X), Points("b, each seed", X, X)]),
    ]
    one, two = plots.draw(charts).axes
    assert to_hex(one.lines[0].get_color()) != to_hex(one.lines[1].get_color())
    assert to_hex(one.lines[1].get_color()) == to_hex(two.lines[0].get_color())
    assert to_hex(two.lines[0].get_color()) == to_hex(two.lines[1].get_color())
    assert [text.get_text() for text in two.get_legend().get_texts()] == ["b"]


def test_few_points_have_bars_and_many_a_band() -> None:
    few, many = (
        plots.draw([Chart("t", "x", "y", [Curve("a", x, x, x - 1, x + 1)])]).axes[0]
        for x in (X[:4], X)
    )
    assert (len(few.collections), len(many.collections)) == (2, 1)
    assert few.lines[0].get_marker() == "o"
    assert many.lines[0].get_marker() == "None"


def test_charts_of_the_same_names_share_a_legend() -> None:
    for count, last in ((2, 0), (6, 1)):
        curves = [Curve(f"n{i}", X, i * X) for i in range(count)]
        figure = plots.draw([Chart(title, "x", "y", curves) for title in "ab"])
        with_legend = [axes.get_legend() is not None for axes in figure.axes]
        assert with_legend == [i == last for i in range(2)]  # beside the last if it is long


def test_small_panels_reach_equally_far_and_have_no_legend() -> None:
    charts = [
        Chart(f"{scale}", "x", "y", [joined("seed", [(X, scale * X)] * 2, dashed=False)])
        for scale in (1, 5, 9)
    ]
    figure = plots.draw(charts, columns=2, alike=True)
    shown = [axes for axes in figure.axes if axes.get_visible()]
    assert len(shown) == 3
    assert len({axes.get_ylim() for axes in shown}) == 1
    assert not any(axes.get_legend() for axes in shown)


def test_files_are_the_same_for_the_same_charts(tmp_path: Path) -> None:
    chart = Chart("t", "x", "y", [Curve("a", X, np.sin(X), np.sin(X) - 1, np.sin(X) + 1)])
    for name in "ab":
        plots.save(plots.draw([chart]), tmp_path, name)
    for kind in ("png", "pdf"):
        assert (tmp_path / f"a.{kind}").read_bytes() == (tmp_path / f"b.{kind}").read_bytes()
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    figures.save(plots.draw([chart]), tmp_path, "plain")
    sizes = [(tmp_path / f"{name}.png").stat().st_size for name in ("a", "plain")]
    assert sizes[0] < 0.7 * sizes[1]
