"""The pages as a browser shows them: every page, keys, triage, live updates, phones, dark mode, hostile names, axe.

One browser and two sites serve all tests: a state that was made by hand, and all that `strandline ui --demo` shows.
With `STRANDLINE_PICTURES=DIR` the pictures of the documentation are made anew.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from strandline.cli.ui_demo import demo_parts
from strandline.findings import build_report
from strandline.findings.reports.html import format_html
from tests.browser import opened_browser, overflow
from tests.cli.findings_runs import done
from tests.js_packages import js_packages
from tests.waiting import PATIENCE_S, eventually
from tests.web.sites import Client, plant, serve_parts, serve_state

PAGES = (
    *("/", "/findings", "/findings/secrets", "/coverage", "/runs", "/streams", "/streams/0/ORDERS", "/journals"),
    *("/journals/0", "/journals/1", "/folds", "/folds/0?key=item7", "/replicas", "/replicas/0"),
)
PICTURES = {"findings": "/findings", "overview": "/", "stream": "/streams/0/ORDERS", "replica": "/replicas/0"}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with opened_browser() as found:
        yield found


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("browser") / "state"
    plant(found, 1_100)
    return found


@pytest.fixture(scope="module")
def client(where: Path) -> Iterator[Client]:
    with serve_state(where) as found:
        yield found


@pytest.fixture(scope="module")
def demo() -> Iterator[Client]:
    with demo_parts() as parts, serve_parts(parts) as found:
        eventually(lambda: any(one.messages for one in parts.servers[0].value or ()), "messages come")
        eventually(lambda: parts.replicas[0].value and parts.replicas[0].value.followers, "a follower is there")
        yield found


class Looking:
    """A page of a browser, and whatever its console said."""

    def __init__(self, context: BrowserContext, client: Client) -> None:
        context.set_default_timeout(PATIENCE_S * 1000)
        self.client = client
        self.page: Page = context.new_page()
        self.said: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text) if message.type == "error" else None)
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.goto(client.access.entry)

    def open(self, path: str) -> Page:
        self.page.goto(self.client.access.address + path)
        self.page.wait_for_selector("#live:not([hidden])")
        return self.page


@pytest.fixture
def looking(browser: Browser, client: Client) -> Iterator[Looking]:
    context = browser.new_context(viewport={"width": 1360, "height": 860})
    found = Looking(context, client)
    yield found
    context.close()
    assert not found.said


def test_the_address_loses_its_token_at_once(looking: Looking) -> None:
    assert looking.client.access.token not in looking.page.url


def test_every_page_is_shown_without_an_error_and_fits_a_phone(browser: Browser, demo: Client) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 800})
    shown = Looking(context, demo)
    for path in PAGES:
        page = shown.open(path)
        assert page.locator("h1").count() == 1, path
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        here = page.locator("nav[aria-label='Pages'] [aria-current]")
        assert here.evaluate("(link) => link.getBoundingClientRect().right <= innerWidth"), path
    page = shown.open("/findings?q=netrc")
    assert page.locator("select[name=confidence]").evaluate("(field) => field.offsetHeight") < 60
    place = "(all) => all.every((cell) => cell.getBoundingClientRect().right <= innerWidth)"
    shown.open("/findings")
    assert page.locator("[data-row] .place").evaluate_all(place), "places are seen without moving the table"
    shown.open("/")
    assert page.locator("[data-row] .num").evaluate_all(place), "how far behind a part is is seen at once"
    page = shown.open("/findings?q=netrc")
    page.locator("[data-row] a").first.click()
    page.wait_for_selector("#h-places")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the longest path, and an id"
    page = shown.open("/runs")
    page.locator("main a[href*='/runs/']").first.click()
    page.wait_for_selector(".legend")
    tall = page.locator(".legend span").evaluate_all("(all) => all.map((one) => one.offsetHeight)")
    assert len(tall) == 5
    assert len(set(tall)) == 1, "no entry of the legend is laid out as something else"
    context.close()
    assert not shown.said


def violations(shown: Looking, path: str, *, contrast_only: bool = False) -> list[object]:
    """Return what axe says of a page."""
    axe = js_packages(Path(__file__).parent / "js") / "axe-core" / "axe.min.js"
    page = shown.open(path)
    page.add_script_tag(path=axe)
    chosen = {"runOnly": ["color-contrast"]} if contrast_only else {}
    found: list[object] = page.evaluate(
        "async (chosen) => (await axe.run(chosen)).violations.map((v) => [v.id, v.nodes.map((n) => n.html)])", chosen
    )
    return found


@pytest.mark.parametrize("pages", [PAGES[1:2], pytest.param((PAGES[0], *PAGES[2:]), marks=pytest.mark.long)])
def test_axe_finds_no_violation(browser: Browser, demo: Client, pages: tuple[str, ...]) -> None:
    context = browser.new_context(bypass_csp=True)
    shown = Looking(context, demo)
    found = {path: told for path in pages if (told := violations(shown, path))}
    context.close()
    assert not found


@pytest.mark.long
def test_axe_finds_enough_contrast_in_the_dark(browser: Browser, demo: Client) -> None:
    context = browser.new_context(color_scheme="dark", bypass_csp=True)
    shown = Looking(context, demo)
    pages = ("/", "/findings", "/coverage", "/streams/0/ORDERS")
    found = {path: told for path in pages if (told := violations(shown, path, contrast_only=True))}
    context.close()
    assert not found


def test_dark_mode_follows_the_system_and_the_button(browser: Browser, client: Client) -> None:
    def background(page: Page) -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    context = browser.new_context(color_scheme="dark")
    page = Looking(context, client).page
    dark = background(page)
    page.click("#theme")
    light = background(page)
    assert light != dark
    page.reload()
    assert background(page) == light
    context.close()


def test_filters_work_as_one_types_and_the_address_says_so(looking: Looking) -> None:
    page = looking.open("/findings")
    page.fill("#q", "billing")
    page.wait_for_url("**/findings?q=billing*")
    page.wait_for_function(
        "() => [...document.querySelectorAll('[data-row]')].every((row) => row.textContent.includes('billing'))"
    )
    assert page.evaluate("document.activeElement.id") == "q"
    page.check("input[name=rule][value=github-pat]")
    page.wait_for_url("**rule=github-pat*")
    page.go_back()
    page.wait_for_function("() => !document.querySelector('input[name=rule][value=github-pat]').checked")


def test_a_decision_is_made_and_undone(looking: Looking) -> None:
    page = looking.open("/findings?state=open")
    place = page.locator("[data-row]").first.locator("a").first.get_attribute("href")
    page.locator("[data-row] input[name=id]").first.check()
    assert page.inner_text("#ticked") == "1 ticked"
    page.select_option("#triage select[name=state]", "revoked")
    page.fill("#triage input[name=why]", "rotated")
    page.click("text=Decide about the ticked")
    page.wait_for_selector("text=Decided about 1 finding.")
    assert page.locator(f'[data-row] a[href="{place}"]').count() == 0
    page.click("#notice button")
    page.wait_for_selector(f'[data-row] a[href="{place}"]')
    page = looking.open(str(place))
    assert "rotated" in page.inner_text(".history")
    assert "(undo)" in page.inner_text(".history")


def test_a_decision_made_elsewhere_shows_without_loading_the_page_again(looking: Looking, where: Path) -> None:
    page = looking.open("/findings?per=50&sort=newest")
    page.evaluate("window.same = true")
    link = str(page.locator("[data-row] a").first.get_attribute("href"))
    done("triage", link.rpartition("/")[2], "--as", "confirmed", state=where)
    page.wait_for_selector(f"tr:has(a[href='{link}']) .state.confirmed")
    assert page.evaluate("window.same") is True


def test_keys_move_tick_search_and_go(looking: Looking) -> None:
    page = looking.open("/findings")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("x")
    assert page.locator("[data-row].at input[name=id]").is_checked()
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "q"
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("c")
    page.wait_for_url("**/coverage")


def test_a_thousand_rows_and_hostile_names_are_only_text(looking: Looking) -> None:
    page = looking.open("/findings?per=1000")
    assert page.locator("[data-row]").count() == 1_000
    page = looking.open("/findings?q=script")
    assert page.title().startswith("Findings")
    assert page.locator("[data-row]").count() == 1
    text = page.locator("[data-row] .path").inner_text()
    assert "<script>document.title='owned'</script>" in text
    assert r"\u202e" in text
    assert r"\x1b[31m" in text


def test_pages_work_without_scripts(browser: Browser, client: Client) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(client.access.entry)
    page.goto(client.access.address + "/findings")
    page.fill("#q", "billing")
    page.click("text=Apply")
    assert "q=billing" in page.url
    assert page.locator("[data-row]").count() > 0
    context.close()


@pytest.mark.long
def test_live_pages_follow_a_scan_and_a_stream(browser: Browser, demo: Client) -> None:
    context = browser.new_context()
    shown = Looking(context, demo)
    page = shown.open("/streams")
    before = page.inner_text("tr:has(a:text('ORDERS')) td:nth-child(3)")
    page.wait_for_function(
        "(before) => [...document.querySelectorAll('tr')].find((row) => row.textContent.startsWith('ORDERS'))"
        "?.children[2].textContent !== before",
        arg=before,
    )
    page = shown.open("/findings")
    count = page.locator("[data-row]").count()
    page.wait_for_function("(count) => document.querySelectorAll('[data-row]').length > count", arg=count)
    context.close()
    assert not shown.said


@pytest.mark.long
def test_pictures_of_the_pages(browser: Browser, demo: Client, tmp_path: Path) -> None:
    folder = Path(os.environ.get("STRANDLINE_PICTURES", tmp_path))
    for colours in ("light", "dark"):
        context = browser.new_context(
            viewport={"width": 1360, "height": 720}, color_scheme="dark" if colours == "dark" else "light"
        )
        shown = Looking(context, demo)
        for name, path in PICTURES.items():
            if colours == "light" or name == "findings":
                page = shown.open(path)
                page.screenshot(path=folder / f"ui-{name}{'' if colours == 'light' else '-dark'}.png")
        context.close()
        assert not shown.said
    assert len(list(folder.glob("ui-*.png"))) == len(PICTURES) + 1


@pytest.mark.long
def test_the_picture_of_the_report(browser: Browser, demo: Client, tmp_path: Path) -> None:
    folder = Path(os.environ.get("STRANDLINE_PICTURES", tmp_path))
    file = tmp_path / "report.html"
    assert demo.site.parts.scans is not None
    file.write_text("".join(format_html(build_report(demo.site.parts.scans.state, coverage=True))))
    for width, path in ((1280, folder / "report.png"), (390, tmp_path / "report-phone.png")):
        page = browser.new_page(viewport={"width": width, "height": 1200})
        page.goto(file.as_uri())
        page.wait_for_selector("tr.row")
        assert overflow(page) == []
        page.screenshot(path=path)
        page.close()
