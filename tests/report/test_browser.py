"""The HTML report in a real Chromium: it draws, filters and sorts, and says nothing on the console."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from orchestrator.cli.main import main

webdriver = pytest.importorskip("selenium.webdriver")

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver"),
]

Sql = Callable[[str], list[tuple[Any, ...]]]
WIDTHS = {"wide": (1400, 900), "narrow": (390, 844)}


def written(database: Path, folder: Path, *arguments: str) -> Path:
    """The page of a sweep of that database."""
    target = folder / "report.html"
    options = ["--db", str(database), "--format", "html", "-o", str(target)]
    done = CliRunner().invoke(main, ["report", *arguments, *options])
    assert done.exit_code == 0, done.output
    return target


@contextmanager
def loaded(page: Path, width: int, height: int) -> Iterator[Any]:
    """The page, loaded at one width; a phone's width is emulated, since a window cannot be so narrow."""
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--disable-dev-shm-usage",
        f"--window-size={width},{height}",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    try:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        driver.get(page.as_uri())
        assert driver.execute_script("return document.body.dataset.ready") == "true"
        yield driver
    finally:
        driver.quit()


@pytest.fixture(scope="module")
def page(results: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(results, tmp_path_factory.mktemp("browser"))


@pytest.fixture(scope="module", params=list(WIDTHS))
def browser(request: pytest.FixtureRequest, page: Path) -> Iterator[Any]:
    with loaded(page, *WIDTHS[request.param]) as driver:
        yield driver


def script(browser: Any, text: str, *arguments: object) -> Any:
    return browser.execute_script(text, *arguments)


def type_filter(browser: Any, text: str) -> None:
    script(
        browser,
        "const f = document.getElementById('filter'); f.value = arguments[0];"
        "f.dispatchEvent(new Event('input'));",
        text,
    )


def shown_column(browser: Any, name: str) -> list[str]:
    found: list[str] = script(
        browser,
        """
        const names = Array.from(document.querySelectorAll('#job-table th button'), (b) => b.title.slice(8));
        const place = names.indexOf(arguments[0]);
        return Array.from(document.querySelectorAll('#job-table tbody tr'), (r) => r.children[place].title ||
            r.children[place].textContent);""",
        name,
    )
    return found


def test_nothing_is_said_on_the_console(browser: Any) -> None:
    assert [entry for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []
    assert script(browser, "return window.orchErrors") == []


def test_nothing_is_fetched(browser: Any) -> None:
    requested = script(browser, "return performance.getEntriesByType('resource').map((e) => e.name)")
    assert [name for name in requested if not name.startswith(("data:", "blob:"))] == []


def test_every_plot_is_drawn(browser: Any) -> None:
    for name in ("size", "split", "memory", "iterations", "drift", "scaling"):
        assert script(
            browser, "return document.querySelectorAll(`#plot-${arguments[0]} svg.main-svg`).length", name
        ), name


@pytest.mark.parametrize("width", list(WIDTHS))
def test_names_of_bars_do_not_overlap_and_no_legend_is_cut_or_scrolls(tmp_path: Path, width: str) -> None:
    """On real measurements, whose settings have long names."""
    shipped = Path(__file__).parents[2] / "docs" / "data" / "h200-x2.db"
    with loaded(written(shipped, tmp_path, "findings"), *WIDTHS[width]) as browser:
        boxes = script(
            browser,
            """
            const places = Array.from(document.querySelectorAll('#plot-split .ytick text'),
                                      (tick) => tick.getBoundingClientRect());
            return places.map((place) => [place.top, place.bottom]);
            """,
        )
        legends = script(
            browser,
            """
            const right = (thing) => thing.getBoundingClientRect().right;
            return Array.from(document.querySelectorAll('.plot')).filter((plot) => !plot.hidden).map(
                (plot) => [plot.id, right(plot), ...Array.from(plot.querySelectorAll('.legendtext'), right)]);
            """,
        )
        bars = "document.querySelectorAll('.plot .legend .scrollbar')"
        scrolled = script(browser, f"return Array.from({bars}, (bar) => Number(bar.getAttribute('height')))")
    boxes.sort()
    assert len(boxes) > 1
    assert all(above[1] <= below[0] + 1 for above, below in pairwise(boxes))
    assert [name for name, edge, *texts in legends if any(right > edge for right in texts)] == []
    assert not any(scrolled)


def test_the_page_is_no_wider_than_the_window(browser: Any) -> None:
    width, inner = script(browser, "return [document.documentElement.scrollWidth, window.innerWidth]")
    assert width <= inner


def test_the_table_shows_the_database_s_numbers(browser: Any, sql: Sql) -> None:
    type_filter(browser, "")
    expected = sql("""SELECT r.offload_s_median FROM job j LEFT JOIN job_result r USING (job_id)
                      WHERE j.sweep_id = 2 ORDER BY j.position""")
    assert shown_column(browser, "offload_s_median") == [
        "–" if value is None else f"offload_s_median = {value}" for (value,) in expected
    ]


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("status=failed", "status = 'failed'"),
        ("pin_memory=yes hidden_dim>=8192", "pin_memory AND hidden_dim >= 8192"),
        ("status!=ok", "status <> 'ok'"),
        ("dtype=float16", "dtype = 'float16'"),
        ("nothing-has-this", "1 = 0"),
    ],
)
def test_the_filter_keeps_what_the_database_would(browser: Any, sql: Sql, text: str, where: str) -> None:
    type_filter(browser, text)
    [(count,)] = sql(f"SELECT COUNT(*) FROM job WHERE sweep_id = 2 AND {where}")
    assert (
        script(browser, "return document.getElementById('filter-count').textContent") == f"{count} of 65 jobs"
    )
    assert len(shown_column(browser, "job")) == count


def test_a_heading_sorts_both_ways(browser: Any) -> None:
    type_filter(browser, "status=ok")
    click = "document.querySelector('#job-table button[title=\"sort by reload_s_median\"]').click()"
    script(browser, click)
    values = [float(text.rpartition(" ")[2]) for text in shown_column(browser, "reload_s_median")]
    assert values == sorted(values)
    script(browser, click)
    values = [float(text.rpartition(" ")[2]) for text in shown_column(browser, "reload_s_median")]
    assert values == sorted(values, reverse=True)
    assert script(browser, "return document.querySelector('th[aria-sort]').ariaSort") == "descending"


def test_choosing_redraws_without_an_error(browser: Any) -> None:
    script(
        browser,
        """
        for (const select of document.querySelectorAll('select')) {
            for (const option of select.options) {
                select.value = option.value;
                select.dispatchEvent(new Event('change'));
            }
        }""",
    )
    assert script(browser, "return window.orchErrors") == []
    test_nothing_is_said_on_the_console(browser)


def test_a_label_cannot_become_an_element(browser: Any) -> None:
    type_filter(browser, "script")
    assert "=1+1|<script>alert(1)</script>`" in shown_column(browser, "env.NOTE")
    assert script(browser, "return document.querySelectorAll('main script').length") == 0


def test_controls_have_names(browser: Any) -> None:
    nameless = script(
        browser,
        """
        return Array.from(document.querySelectorAll('select, input, button'))
            .filter((e) => !e.closest('.modebar') && !(e.labels && e.labels.length) && !e.textContent.trim())
            .map((e) => e.outerHTML)""",
    )
    assert nameless == []


def test_ticks_of_a_logarithmic_axis_are_whole_numbers(browser: Any) -> None:
    """Plotly alone writes 0.2 as "2"."""
    for plot in ("plot-size", "plot-iterations"):
        text, range_ = script(
            browser,
            "const p = document.getElementById(arguments[0]);"
            "return [[...p.querySelectorAll('.ytick text')].map((one) => one.textContent),"
            "        p._fullLayout.yaxis.range];",
            plot,
        )
        ticks = [float(one) for one in text]
        assert len(ticks) >= 2
        assert all(10 ** range_[0] * 0.999 <= tick <= 10 ** range_[1] * 1.001 for tick in ticks)


def test_no_axis_title_is_cut(browser: Any) -> None:
    cut = script(
        browser,
        "return [...document.querySelectorAll('.plot')].filter((plot) => !plot.hidden && plot.clientHeight)"
        ".filter((plot) => [...plot.querySelectorAll('.xtitle, .ytitle')].some((title) => {"
        "  const inner = title.getBoundingClientRect(), outer = plot.getBoundingClientRect();"
        "  return inner.bottom > outer.bottom || inner.left < outer.left; })).map((plot) => plot.id)",
    )
    assert cut == []
