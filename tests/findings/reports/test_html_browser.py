"""The HTML report in a browser: it fits a phone and a desk, light and dark, and its figures agree with each other."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from strandline.detect.locations import Location
from strandline.findings.reports import Report
from strandline.findings.reports.html import format_html
from tests.browser import WIDTHS, opened_browser, overflow, screenshot
from tests.findings.reports.examples import COVERAGE, FACTS, FINDINGS, REPORT, RULES, finding

LONG = Location("file", "a/very-long-folder-name-without-a-break/" * 6 + "x" * 90 + ".properties", 123456, 789, 7)
WIDE = Report([*FINDINGS, finding(11, LONG, rule="a-rule-with-quite-a-long-name-of-its-own")], RULES, COVERAGE, FACTS)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with opened_browser() as browser:
        yield browser


def opened(browser: Browser, folder: Path, report: Report, width: int, scheme: str = "light") -> Page:
    file = folder / "report.html"
    file.write_text("".join(format_html(report)))
    page = browser.new_page(viewport={"width": width, "height": 844}, color_scheme=scheme)  # type: ignore[arg-type]
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(file.as_uri())
    page.wait_for_selector("tr.row")
    assert problems == []
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", WIDTHS)
def test_nothing_stands_out_of_the_page(browser: Browser, tmp_path: Path, name: str, scheme: str) -> None:
    page = opened(browser, tmp_path, WIDE, WIDTHS[name], scheme)
    assert overflow(page) == []
    page.locator("tr.row button").first.click()
    page.wait_for_selector("tr.details")
    assert overflow(page) == []
    assert screenshot(page, tmp_path, f"report-{name}-{scheme}").stat().st_size > 10_000
    shade = page.evaluate("getComputedStyle(document.body).backgroundColor")
    red = int(re.findall(r"\d+", shade)[0])
    assert (red < 64) == (scheme == "dark")


def test_the_place_comes_first(browser: Browser, tmp_path: Path) -> None:
    for width in WIDTHS.values():
        page = opened(browser, tmp_path, REPORT, width)
        row = page.locator("tr.row", has_text="app.py")
        place, rule = (row.locator(f"td.{name}").bounding_box() for name in ("place", "rule"))
        assert place is not None
        assert rule is not None
        assert (place["y"], place["x"]) < (rule["y"], rule["x"])
        assert page.locator("#list").bounding_box()["y"] < (1200 if width < 720 else 2000)  # type: ignore[index]


def test_figures_agree_with_each_other(browser: Browser, tmp_path: Path) -> None:
    page = opened(browser, tmp_path, REPORT, WIDTHS["desk"])
    texts = [[line.strip() for line in tile.inner_text().splitlines() if line] for tile in page.locator(".tile").all()]
    tiles = {name: int(big.replace(",", "")) for name, big, _ in texts if big.replace(",", "").isdigit()}
    heading = page.locator("h1").inner_text()
    secrets, files = map(int, re.findall(r"\d+", heading)[:2])
    assert heading == f"{secrets} open secrets in {files} files, 1 finding confirmed"
    assert (tiles["Open secrets"], tiles["Files with open findings"]) == (secrets, files)
    assert page.locator(".legend li", has_text="open").inner_text().split() == ["open", str(tiles["Open findings"])]
    page.select_option("#state", "open")
    rows = page.locator("tr.row")
    assert rows.count() == tiles["Open findings"]
    assert page.locator("#count").inner_text() == f"{tiles['Open findings']} of {len(FINDINGS)} findings"
    page.select_option("#level", "high")
    assert page.locator("tr.row").count() == tiles["High confidence"]
    page.click("#reset")
    two = page.locator("tr.row", has_text="two.txt").locator(".same").inner_text()
    places = sum(len(one.locations) for one in FINDINGS if one.secret == FINDINGS[6].secret)
    assert two == f"{places} places"
