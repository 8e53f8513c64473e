"""The report page: whatever the content, one file that is whole, harmless and always the same."""

import base64
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from windward.studies import report
from windward.studies.report import Chart, Curve, Picture, Points, Section, Table, Text
from windward.studies.text import Cell

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
EVIL = "</script><script>alert(1)</script>"


class Page(HTMLParser):
    """The tags of a page with their attributes, and the text in each kind of tag."""

    EMPTY = ("meta", "link", "img", "br")

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.open: list[str] = []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.EMPTY:
            self.open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts[self.open[-1]][-1] += data


def page(tmp_path: Path, *sections: Section, **rest: Any) -> str:
    content = {"title": "Title", "lead": "Lead.", "sections": sections, "facts": {}} | rest
    report.write(tmp_path / "report.html", **content)
    return (tmp_path / "report.html").read_text()


def chart(*curves: Curve | Points, **rest: Any) -> Chart:
    return Chart("Chart", "step", "cost", curves, **rest)


def embedded(source: str) -> list[dict[str, Any]]:
    """The curves of the first chart, read as a browser does, with strict JSON."""

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    text = re.search(r'<script type="application/json">(.*?)</script>', source, re.DOTALL)
    assert text
    curves: list[dict[str, Any]] = json.loads(text[1], parse_constant=refuse)["curves"]
    return curves


def everything(text: str) -> dict[str, Any]:
    """A page with the same text in every place that takes text."""
    return {
        "title": text,
        "lead": text,
        "facts": {text: text, "command": text},
        "sections": [
            Text(text, [text]),
            Chart(text, text, text, [Curve(text, [0, 1], [1, 2]), Points(text, [0], [1])], text),
            Table(text, [text, "n"], [[text, 1.5]], text),
            Picture(text, PNG, text),
        ],
    }


def test_a_page_holds_all_that_it_is_given(tmp_path: Path) -> None:
    read = Page(page(tmp_path, **everything("Wind γ & 'sea' ±1")))
    assert not read.open
    for tag in ("title", "h1", "p", "h2", "td", "th", "dt", "dd", "pre", "figcaption"):
        assert any("Wind γ & 'sea' ±1" in text for text in read.texts[tag]), tag
    assert read.texts["noscript"]
    assert ("img", "Wind γ & 'sea' ±1") in [(tag, each.get("alt")) for tag, each in read.tags]


@pytest.mark.parametrize("text", [EVIL, "\"'><img src=x onerror=alert(1)>", "{{ 1 }} {% x %} <!--"])
def test_content_is_only_ever_text(tmp_path: Path, text: str) -> None:
    harmless, hostile = (Page(page(tmp_path, **everything(each))) for each in ("text", text))
    shape = [[(tag, sorted(each)) for tag, each in read.tags] for read in (harmless, hostile)]
    assert shape[0] == shape[1]
    assert [curve["name"] for curve in embedded(page(tmp_path, **everything(text)))] == [text] * 2


def test_nothing_is_loaded_from_elsewhere(tmp_path: Path) -> None:
    source = page(tmp_path, **everything("text"))
    for tag, attributes in Page(source).tags:
        for name in ("src", "href", "srcset", "action"):
            assert (attributes.get(name) or "#").startswith(("#", "data:")), tag
    assert "default-src 'none'" in source
    assert "@import" not in source
    assert "url(" not in source
    assert re.findall(r"https?://[^\"]*", source) == ["http://www.w3.org/2000/svg"]


def test_the_same_content_gives_the_same_bytes_in_any_encoding(tmp_path: Path) -> None:
    first = page(tmp_path, **everything("γ"))
    assert first == page(tmp_path, **everything("γ"))
    assert first.isascii()
    assert not list(tmp_path.glob("*.partial"))


def test_a_page_without_sections_or_facts(tmp_path: Path) -> None:
    read = Page(page(tmp_path))
    assert "h2" not in read.texts
    assert "noscript" not in read.texts


def test_numbers_that_are_not_finite_are_gaps(tmp_path: Path) -> None:
    values = [1.0, np.nan, np.inf, -np.inf, 2.5]
    curve = Curve("c", [0, 1, 2, np.nan, 4], values, low=values, high=values)
    (read,) = embedded(page(tmp_path, chart(curve)))
    gaps = [1, None, None, None, 2.5]
    assert read == {
        "name": "c", "points": False, "dashed": False,
        "x": [0, 1, 2, None, 4], "y": gaps, "low": gaps, "high": gaps,
    }  # fmt: skip


def test_a_logarithmic_axis_has_gaps_where_numbers_are_not_positive(tmp_path: Path) -> None:
    curve = Curve("c", [0, 1, 10], [1, -1, 2], low=[-1, -2, 1], high=[2, 1, 3])
    (read,) = embedded(page(tmp_path, chart(curve, log_x=True, log_y=True)))
    assert read["x"] == [None, 1, 10]
    assert read["y"] == [1, None, 2]
    assert read["low"] == [-1, -2, 1]  # a band may reach the floor of the chart


def test_a_long_curve_is_thinned_and_keeps_its_peaks_gaps_and_ends(tmp_path: Path) -> None:
    y = np.sin(np.arange(100_000) / 3000)
    y[[12_345, 77_777]] = 9.0, -9.0
    y[50_000] = np.nan
    low, high = y - 1, y + 1
    low[33_333], high[66_666] = -20.0, 20.0
    for curve in (Curve("c", np.arange(100_000), y), Curve("c", np.arange(100_000), y, low, high)):
        (read,) = embedded(page(tmp_path, chart(curve)))
        assert 500 < len(read["x"]) <= report.POINTS
        assert read["x"] == sorted(set(read["x"]))
        assert [read["x"][0], read["x"][-1]] == [0, 99_999]
        at = dict(zip(read["x"], read["y"], strict=True))
        assert (at[12_345], at[77_777], at[50_000]) == (9, -9, None)
    assert min(v for v in read["low"] if v is not None) == -20
    assert max(v for v in read["high"] if v is not None) == 20
    assert len((tmp_path / "report.html").read_bytes()) < 200_000


def test_short_curves_keep_every_point_and_large_counts_every_digit(tmp_path: Path) -> None:
    x = np.arange(report.POINTS) + 123_456_000
    (read,) = embedded(page(tmp_path, chart(Points("p", x, x * 1e-3))))
    assert read["points"]
    assert read["x"] == x.tolist()
    assert read["y"][1] == 123_456.001


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Curve("gust", [1, 2], [1]), "curve 'gust'.*same length.*x \\(2,\\), y \\(1,\\)"),
        (lambda: Curve("gust", [1], [1], [0, 0], [2, 2]), "curve 'gust'.*low \\(2,\\)"),
        (lambda: Curve("gust", [1], [1], low=[0]), "curve 'gust': low and high"),
        (lambda: Curve("gust", [[1]], [[1]]), "curve 'gust'.*\\(1, 1\\)"),
        (lambda: Curve("gust", ["a"], [1]), "curve 'gust': x must be numbers"),
        (lambda: Points("gust", [1, 2], [1]), "points 'gust'"),
        (lambda: Table("gust", ["a", "b"], [[1, 2], [1]]), "table 'gust': row 1 has 1 cells for 2"),
    ],
)
def test_content_that_does_not_fit_together_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_columns_with_numbers_are_aligned_to_the_right(tmp_path: Path) -> None:
    rows: list[list[Cell]] = [
        ["a", np.float64(1.5), None, True],
        ["b", "diverged", np.int64(20_000), False],
    ]
    read = Page(page(tmp_path, Table("t", ["method", "mean", "steps", "done"], rows)))
    cells = [attributes.get("class") for tag, attributes in read.tags if tag in ("th", "td")]
    assert cells == [None, "number", "number", None] * 3
    assert read.texts["td"] == ["a", "1.500", "–", "True", "b", "diverged", "20,000", "False"]


def test_pictures_are_part_of_the_page(tmp_path: Path) -> None:
    (tmp_path / "x.gif").write_bytes(b"GIF89a...")
    read = Page(page(tmp_path, Picture("a", PNG), Picture("b", tmp_path / "x.gif")))
    png, gif = [each["src"] or "" for tag, each in read.tags if tag == "img"]
    assert base64.b64decode(png.removeprefix("data:image/png;base64,")) == PNG
    assert gif.startswith("data:image/gif;base64,")
    with pytest.raises(ValueError, match="picture 'c' must be a PNG"):
        page(tmp_path, Picture("c", b"<svg onload=alert(1)>"))


def test_the_command_and_facts_of_several_lines_are_code(tmp_path: Path) -> None:
    facts = {"command": "windward run x", "commit": "abc", "versions": "jax 1\nnumpy 2"}
    read = Page(page(tmp_path, facts=facts))
    assert read.texts["dt"] == list(facts)
    assert read.texts["pre"] == ["windward run x", "jax 1\nnumpy 2"]


def test_of_several_lines_the_first_is_what_was_asked(tmp_path: Path) -> None:
    report.write(tmp_path / "r.html", "T", "Does it?\nIt does.\nSurely.", [], {})
    page = (tmp_path / "r.html").read_text()
    assert '<p class="asked">Does it?</p>' in page
    assert re.search(r'<div class="lead">\s*<p>It does.</p>\s*<p>Surely.</p>\s*</div>', page)
    report.write(tmp_path / "r.html", "T", "It does.", [], {})
    assert '<p class="asked">' not in (tmp_path / "r.html").read_text()
