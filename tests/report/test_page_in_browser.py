"""The page in a browser: no error, no request, a slider that gives the library's numbers, a table that sorts."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pages import HOSTILE, write_run

import precsim as ps
from precsim.analyze import Analysis, analyze
from precsim.report.page import render_page

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")

if not (BROWSER and DRIVER):
    if os.environ.get("PRECSIM_REQUIRE_BROWSER") == "1":
        raise RuntimeError("PRECSIM_REQUIRE_BROWSER=1, but chromium or chromedriver is missing")
    pytest.skip("chromium or chromedriver is not installed", allow_module_level=True)

FORMATS = [ps.FP16, ps.BF16, ps.E4M3, ps.E5M2]


@pytest.fixture(scope="module")
def analysis(tmp_path_factory) -> Analysis:
    return analyze(ps.open_run(write_run(tmp_path_factory.mktemp("run"))), FORMATS)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for argument in ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def page(browser, analysis, tmp_path) -> Any:
    """The page, drawn."""
    from selenium.webdriver.support.ui import WebDriverWait

    file = Path(tmp_path) / "page.html"
    advice = [(HOSTILE[0], [HOSTILE[1]])]
    file.write_text(
        render_page(analysis, title=HOSTILE[1], advice=advice, marks={"fp16": 12}), encoding="utf-8"
    )
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(file.as_uri())
    WebDriverWait(browser, 60).until(
        lambda driver: driver.execute_script("return document.documentElement.dataset.ready === 'yes'")
    )
    return browser


def move_slider(page: Any, k: int) -> None:
    page.execute_script(
        "const s = document.getElementById('scale'); s.value = arguments[0]; s.dispatchEvent(new Event('input'))",
        k,
    )


def names(page: Any) -> list[str]:
    return page.execute_script(
        "return [...document.querySelectorAll('#tensors tbody td button')].map(b => b.textContent)"
    )


def test_no_error_and_no_request(page):
    move_slider(page, 7)
    assert [entry for entry in page.get_log("browser") if entry["level"] != "DEBUG"] == []
    asked = [
        message["params"]["request"]["url"]
        for entry in page.get_log("performance")
        if (message := json.loads(entry["message"])["message"])["method"] == "Network.requestWillBeSent"
    ]
    assert [url for url in asked if not url.startswith(("file:///", "data:", "blob:"))] == []
    assert page.execute_script("return performance.getEntriesByType('resource').length") == 0


def test_charts_are_drawn(page):
    for chart in ("histogram", "curve0", "curve3", "cells", "movement"):
        marks = page.execute_script(f"return document.querySelectorAll('#{chart} svg path').length")
        assert marks > 3, chart


@pytest.mark.parametrize("k", [-40, -3, 0, 1, 8, 17, 40])
def test_the_slider_gives_the_numbers_of_the_library(page, analysis, k):
    before = page.execute_script("return document.querySelector('#histogram svg').innerHTML")
    move_slider(page, k)
    assert page.execute_script("return document.getElementById('scale-text').textContent") == f"2^{k}"
    cells = page.execute_script(
        "return [...document.querySelectorAll('#shares td[data-count]')].map("
        "c => [c.parentNode.dataset.format, c.dataset.outcome, Number(c.dataset.count), c.textContent])"
    )
    assert len(cells) == 3 * len(FORMATS)
    from precsim.wording import percent

    for name, outcome, count, text in cells:
        want = analysis.total.sketch.outcomes(name, 2.0**k)
        assert count == getattr(want, outcome), f"{name} {outcome} at 2^{k}"
        assert text == percent(count, want.nonzero)
    if k:
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(page, 20).until(
            lambda driver: (
                driver.execute_script("return document.querySelector('#histogram svg').innerHTML") != before
            )
        )


def test_percentages_read_as_in_python(page):
    from precsim.wording import percent

    pairs = [
        (0, 5),
        (5, 5),
        (1, 3),
        (2, 3),
        (1, 1000),
        (1, 10_001),
        (31, 10**9),
        (9999, 10_000),
        (99_949, 100_000),
        (1, 7000),
    ]
    got = page.execute_script("return arguments[0].map(([a, b]) => window.precsim.percent(a, b))", pairs)
    assert got == [percent(*pair) for pair in pairs]


def test_every_tensor_and_group_at_every_scale(page, analysis):
    sketches: dict[str, ps.Sketch] = {}
    for tensor in analysis.total.tensors:
        sketches[tensor.name] = sketches.get(tensor.name, ps.Sketch()) + tensor.sketch
    got = page.execute_script(
        "const {data, outcomes} = window.precsim, found = [];"
        "for (const t of data.tensors) for (const f of data.formats) for (let k = -40; k <= 40; k += 5) {"
        "const o = outcomes(t, f, k);"
        "found.push([t.name, f.name, k, o.zero, o.flushed, o.subnormal, o.normal, o.overflowed, o.nonfinite]); }"
        "return found"
    )
    assert len(got) == len(sketches) * len(FORMATS) * 17
    for name, fmt, k, *counts in got:
        want = sketches[name].outcomes(fmt, 2.0**k)
        assert counts == [
            want.zero,
            want.flushed,
            want.subnormal,
            want.normal,
            want.overflowed,
            want.nonfinite,
        ]


def test_the_table_sorts_filters_and_is_worst_first(page, analysis):
    sketches: dict[str, ps.Sketch] = {}
    for tensor in analysis.total.tensors:
        sketches[tensor.name] = sketches.get(tensor.name, ps.Sketch()) + tensor.sketch

    def lost(name: str) -> float:
        found = sketches[name].outcomes(ps.FP16)
        return found.share("flushed") + found.share("overflowed")

    move_slider(page, 0)
    shown = names(page)
    assert sorted(shown) == sorted(sketches)
    assert [lost(name) for name in shown] == sorted(map(lost, shown), reverse=True)

    def click(key: str) -> None:
        page.execute_script(f"document.querySelector('#tensors thead button[data-key={key}]').click()")

    click("amax")
    assert [sketches[name].amax for name in names(page)] == sorted(
        (s.amax for s in sketches.values()), reverse=True
    )
    click("amax")
    assert [sketches[name].amax for name in names(page)] == sorted(s.amax for s in sketches.values())
    assert (
        page.execute_script("return document.querySelector('#tensors [aria-sort]').textContent")
        == "greatest ▲"
    )
    page.execute_script(
        "const f = document.getElementById('filter'); f.value = 'LAYER1'; f.dispatchEvent(new Event('input'))"
    )
    assert names(page) == ["grad/layer1.weight"]
    assert (
        page.execute_script("return document.getElementById('found').textContent") == f"1 of {len(sketches)}"
    )


def test_a_row_opens_its_histogram_by_keyboard(page):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    button = page.find_element(By.CSS_SELECTOR, "#tensors tbody td button")
    name = button.text
    button.send_keys(Keys.ENTER)
    again = page.switch_to.active_element
    assert (again.text, again.get_attribute("aria-expanded")) == (name, "true")
    assert page.execute_script("return document.querySelectorAll('#tensors .own svg rect').length") > 1
    again.send_keys(Keys.SPACE)
    assert page.execute_script("return document.querySelectorAll('#tensors .own svg').length") == 0


def test_names_are_text_and_nothing_runs(page):
    from selenium.common.exceptions import NoAlertPresentException

    with pytest.raises(NoAlertPresentException):
        _ = page.switch_to.alert.text
    assert page.execute_script("return document.querySelectorAll('img').length") == 0
    assert set(HOSTILE) <= set(names(page))
    assert HOSTILE[1] in page.execute_script("return document.querySelector('h1').textContent")


def test_no_sideways_scrolling_on_a_phone(page):
    page.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True},
    )
    try:
        assert page.execute_script("return document.documentElement.scrollWidth") <= 390
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
