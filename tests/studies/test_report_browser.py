"""The report page in a real browser: charts are drawn, legends switch curves, nothing overflows."""

import json
import os
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from windward.studies import report
from windward.studies.report import Chart, Curve, Points, Section, Table, Text

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.skipif(
        not CHROMIUM, reason="no chromium, chromium-browser or google-chrome on PATH"
    ),
]
EVIL = "</script><script>document.title = 'broken out'</script>"
WIDE, NARROW = (1400, 900), (390, 844)
HELPERS = """
const every = (what) => [...document.querySelectorAll(what)];
const buttons = every('.legend button');
const drawn = () => every('[data-curve]').map((each) => each.dataset.curve).join();
const pressed = () => buttons.map((each) => each.getAttribute('aria-pressed')).join();
const ticks = () => every('.stage > svg > text').map((each) => each.textContent);
const canvas = document.querySelector('.stage > svg');
const box = canvas.getBoundingClientRect();
const key = (name) => canvas.dispatchEvent(new KeyboardEvent('keydown', { key: name }));
const point = (share) => {
  const place = { clientX: box.left + share * box.width, clientY: box.top + 50 };
  canvas.dispatchEvent(new PointerEvent('pointermove', place));
};
const flat = (each) => each.innerText.replace(/\\s+/g, ' ');
const tip = () => every('.tip:not([hidden]) div').map(flat);
"""
# A window has a least width, a frame has not. What the page sends arrives as text beside it.
FRAME = """<!DOCTYPE html><meta name="color-scheme" content="light dark"><pre id="seen"></pre>
<script>onmessage = (event) => { document.querySelector('pre').textContent = event.data; }</script>
<iframe src="report.html" style="border: 0; width: %dpx; height: %dpx"></iframe>
"""


def curves() -> list[Curve | Points]:
    x = np.arange(0, 1001, 10)
    y = np.where((x > 400) & (x < 500), np.nan, x / 10.0)
    return [
        Curve("base", x, y, y - 5, y + 5),
        Curve("adapted", x, 5000.0 + 0 * x, dashed=True),
        Points(EVIL, [0, 500, 500], [1, 2, 3]),
    ]


def chart(**rest: Any) -> Chart:
    return Chart("Cost", "step", "mean cost", curves(), **rest)


def look(
    folder: Path,
    section: Section | list[Section],
    script: str,
    size: tuple[int, int] = WIDE,
    dark: bool = False,
    errors: bool = False,
) -> Any:
    """What the script's `seen` is when it has run at the end of the page, in a new browser."""
    path = folder / "report.html"
    sections = section if isinstance(section, list) else [section]
    report.write(path, "A report", "It holds.", sections, {"command": "windward " + "run " * 60})
    send = "parent.postMessage(JSON.stringify(seen), '*');"
    script = f"<script>{{ {HELPERS} let seen = null; {script}; {send} }}</script>"
    path.write_text(path.read_text().replace("</body>", script + "</body>"))
    (folder / "frame.html").write_text(FRAME % size)
    done = subprocess.run(
        [
            CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--disable-dev-shm-usage", "--hide-scrollbars", "--enable-logging=stderr", "--v=0",
            f"--user-data-dir={folder / 'profile'}", "--window-size=1500,1000",
            f"--blink-settings=preferredColorScheme={0 if dark else 1}",
            "--virtual-time-budget=2000", "--dump-dom", (folder / "frame.html").as_uri(),
        ],
        capture_output=True, text=True, timeout=900, check=True,
        env=os.environ | {"HOME": str(folder)},
    )  # fmt: skip
    said = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert bool(said) == errors, said
    found = re.search(r'<pre id="seen">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found
    return json.loads(unescape(found[1]) or "null")


def test_errors_in_a_page_are_noticed(tmp_path: Path) -> None:
    assert look(tmp_path, chart(), "throw new Error('on purpose')", errors=True) is None


def test_a_page_cannot_load_anything(tmp_path: Path) -> None:
    (tmp_path / "other.js").write_text("document.title = 'loaded'")
    script = (
        "const s = document.createElement('script'); s.src = 'other.js'; document.body.append(s)"
    )
    look(tmp_path, chart(), script, errors=True)


def test_a_chart_is_drawn_with_bands_gaps_and_ticks(tmp_path: Path) -> None:
    seen = look(
        tmp_path,
        chart(),
        """seen = {
            title: document.title, drawn: drawn(), ticks: ticks(), bands: every('.band').length,
            pieces: every('.line').map((each) => each.getAttribute('d').split('M').length - 1),
            dots: every('[data-curve="2"] circle').length, names: buttons.map((b) => b.innerText),
            dashed: every('.line').map((each) => each.getAttribute('stroke-dasharray')),
        }""",
    )
    assert seen["title"] == "A report"
    assert seen["names"] == ["base", "adapted", EVIL]
    assert (seen["drawn"], seen["bands"], seen["dots"]) == ("0,1,2", 1, 3)
    assert seen["pieces"] == [2, 1]
    assert seen["dashed"] == ["none", "7 5"]
    assert {"0", "200", "1000", "4000", "mean cost", "step"} <= set(seen["ticks"])


def test_a_legend_switches_curves_and_the_axis_follows(tmp_path: Path) -> None:
    seen = look(
        tmp_path,
        chart(),
        """seen = [[drawn(), pressed()]];
        buttons[1].focus(); seen.push(document.activeElement === buttons[1]);
        buttons[1].click(); seen.push([drawn(), pressed(), ticks().includes('4000')]);
        buttons[0].click(); buttons[2].click(); seen.push([drawn(), pressed(), ticks()]);
        buttons[1].click(); seen.push([drawn(), pressed()]);""",
    )
    assert seen == [
        ["0,1,2", "true,true,true"],
        True,
        ["0,2", "true,false,true", False],
        ["", "false,false,false", ["no curve is switched on"]],
        ["1", "false,true,false"],
    ]


def test_a_name_has_one_colour_on_the_whole_page_and_dots_that_of_their_line(
    tmp_path: Path,
) -> None:
    x = [1, 2]
    sections: list[Section] = [
        Chart("Both", "x", "y", [Curve("base", x, x), Curve("ours", x, x)]),
        Chart("One", "x", "y", [Curve("ours", x, x), Points("ours, each seed", x, x)]),
        Chart("Many", "x", "y", [Curve(f"n{i}", x, x) for i in range(6)] + [Curve("base", x, x)]),
    ]
    seen = look(
        tmp_path,
        sections,
        """const colour = (each) => each.querySelector('line, circle').getAttribute(
            each.querySelector('line') ? 'stroke' : 'fill');
        seen = every('.legend').map((legend) => [...legend.querySelectorAll('svg')].map(colour))""",
    )
    assert seen[0] == ["var(--c0)", "var(--c1)"]
    assert seen[1] == ["var(--c1)", "var(--c1)"]
    assert len(set(seen[2])) == 7


def test_many_curves_have_one_button_for_all_and_a_single_point_is_seen(tmp_path: Path) -> None:
    curves = [Curve(f"n{i}", [3], [i], [i - 1], [i + 1]) for i in range(5)]
    seen = look(
        tmp_path,
        Chart("Five", "x", "y", curves),
        """const tall = (each) => each.getBBox().height > 9;
        seen = [buttons.at(-1).innerText, every('.band').map(tall)];
        seen.push(every('.line')[0].getAttribute('stroke-width'));
        buttons.at(-1).click(); seen.push(drawn()); buttons[2].click(); seen.push(drawn());
        buttons.at(-1).click(); buttons.at(-1).click(); seen.push(drawn());""",
    )
    assert seen == ["all or none", [True] * 5, "7", "", "2", "0,1,2,3,4"]


def test_the_cursor_tells_all_values_at_the_nearest_x(tmp_path: Path) -> None:
    seen = look(
        tmp_path,
        chart(),
        """seen = [tip()];
        point(1); seen.push(tip());
        canvas.dispatchEvent(new PointerEvent('pointerleave')); seen.push(tip());
        key('Home'); key('ArrowRight'); seen.push(tip());
        buttons[2].click(); key('End'); seen.push(tip().length); key('Escape'); seen.push(tip());
        for (let i = 0; i < 51; i++) key('ArrowRight');
        seen.push(tip());
        for (let i = 0; i < 8; i++) key('ArrowLeft');
        seen.push(tip());""",
    )
    far = f"{EVIL} 2 from 2 to 3 at 500"
    assert seen[:3] == [[], ["step: 1,000", "base 100 [95, 105]", "adapted 5,000", far], []]
    assert seen[3] == ["step: 10", "base 1 [-4, 6]", "adapted 5,000", f"{EVIL} 1 at 0"]
    assert seen[4:6] == [3, []]
    assert seen[6] == ["step: 500", "base 50 [45, 55]", "adapted 5,000"]
    assert seen[7] == ["step: 420", "base –", "adapted 5,000"]


@pytest.mark.parametrize("size", [WIDE, NARROW])
def test_nothing_is_wider_than_the_screen(tmp_path: Path, size: tuple[int, int]) -> None:
    wide = Table("Wide", [f"column {i}" for i in range(30)], [["cell"] * 30])
    sections: list[Section] = [Text("Prose", ["word" * 100]), chart(note="note" * 50), wide]
    seen = look(
        tmp_path,
        sections,
        """point(0.5); const tipBox = document.querySelector('.tip').getBoundingClientRect();
        const scroll = document.querySelector('.scroll');
        seen = {
            page: [innerWidth, document.documentElement.scrollWidth], chart: box.width,
            table: scroll.scrollWidth > scroll.clientWidth, tip: [tipBox.left, tipBox.right],
            name: every('.tip span')[0].getClientRects()[0].height,
        }""",
        size,
    )
    assert seen["page"] == [size[0], size[0]]
    assert 0.7 * min(size[0], 992) < seen["chart"] < size[0]
    assert seen["table"]
    assert 0 <= seen["tip"][0] < seen["tip"][1] <= size[0]
    assert seen["name"] < 25  # one line


def test_colours_follow_the_screen(tmp_path: Path) -> None:
    script = """const style = getComputedStyle(document.body);
        seen = [style.backgroundColor, getComputedStyle(every('.line')[0]).stroke]"""
    light, dark = (look(tmp_path, chart(), script, dark=each) for each in (False, True))
    assert light == ["rgb(255, 255, 255)", "rgb(0, 114, 178)"]
    assert dark == ["rgb(20, 23, 26)", "rgb(86, 180, 233)"]


def test_logarithmic_empty_and_long_charts(tmp_path: Path) -> None:
    T = np.logspace(0, 6, 7)
    sections: list[Section] = [
        Chart("Log", "T", "regret", [Curve("r", T, T**0.5, -T, T)], log_x=True, log_y=True),
        Chart("Empty", "x", "y", [Curve("e", [], []), Curve("n", [1], [np.nan])]),
        Chart("None", "x", "y", []),
        Chart("One", "x", "y", [Curve("one", [3], [7])]),
        Chart("Long", "x", "y", [Curve(str(i), range(100_000), range(100_000)) for i in range(9)]),
        Chart("Uneven", "x", "y", [Curve("u", [1, 2], [4e-4, 12])], log_y=True),
    ]
    seen = look(
        tmp_path,
        sections,
        """const texts = (each) => [...each.querySelectorAll('text')].map((t) => t.textContent);
        const values = every('*').flatMap((each) => [...each.attributes].map((a) => a.value));
        seen = {
            texts: every('.stage').map(texts),
            paths: every('path').map((each) => each.getAttribute('d')),
            broken: values.filter((value) => /NaN|Infinity|undefined/.test(value)),
        }""",
    )
    log, empty, none, one, long, uneven = seen["texts"]
    assert {"1", "10", "1000", "1M", "regret"} <= set(log)
    assert {"0.001", "0.01", "0.1", "1", "10"} <= set(uneven)
    assert empty == ["no finite numbers to draw"]
    assert none == ["no curve is switched on"]
    assert {"3", "7"} <= set(one)
    assert {"0", "100k"} & set(long)
    assert seen["broken"] == []
    assert any(path.endswith("h0") for path in seen["paths"])
