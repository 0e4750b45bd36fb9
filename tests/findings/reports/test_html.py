"""The page: one file that loads nothing, runs its own script alone, and takes data for data."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given

from strandline.detect.locations import Location, shown
from strandline.findings.reports import Report, ReportFacts, SourceFacts
from strandline.findings.reports.html import embedded, format_html
from tests.effort import examples
from tests.findings.reports.examples import HOSTILE, REPORT, SECRETS, finding, reports


class Page(HTMLParser):
    """What a browser would make of a page: its tags, and the text of its scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inside: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in {"script", "style", "title", "h1"}:
            self.inside.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        if self.inside and self.inside[-1] == tag:
            self.inside.pop()

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.texts[self.inside[-1]][-1] += data

    @property
    def data(self) -> dict[str, Any]:
        value = json.loads(self.texts["script"][0])
        assert isinstance(value, dict)
        return value


def page_of(report: Report) -> Page:
    return Page("".join(format_html(report)))


def hashed(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


class TestPolicy:
    """What a browser may do with the page."""

    def test_allows_its_own_script_and_style_and_nothing_else(self) -> None:
        page = page_of(REPORT)
        (policy,) = [
            attributes["content"] or ""
            for tag, attributes in page.tags
            if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
        ]
        rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
        assert rules == {
            "default-src": "'none'",
            "script-src": f"'sha256-{hashed(page.texts['script'][1])}'",
            "style-src": f"'sha256-{hashed(page.texts['style'][0])}'",
            "base-uri": "'none'",
            "form-action": "'none'",
            "require-trusted-types-for": "'script'",
            "trusted-types": "'none'",
        }

    def test_nothing_is_loaded_and_no_markup_runs(self) -> None:
        for tag, attributes in page_of(REPORT).tags:
            assert not {"src", "srcset", "style", "action"} & attributes.keys()
            assert not any(name.startswith("on") for name in attributes)
            assert attributes.get("href") in {None, "#findings"}, tag
        script = page_of(REPORT).texts["script"][1]
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|fetch\(|https?://(?!www\.w3)", script
        )

    def test_every_element_that_the_script_asks_for_is_there(self) -> None:
        page = page_of(REPORT)
        asked = set(re.findall(r'byId\("(\w+)"\)', page.texts["script"][1]))
        assert asked - {attributes.get("id") for _, attributes in page.tags} == set()


class TestData:
    """Names are data."""

    @given(reports)
    @examples(40)
    def test_any_report_makes_the_same_page_around_its_data(self, report: Report) -> None:
        page, plain = page_of(report), page_of(Report([]))
        used = [tag for tag, _ in page.tags]
        assert [tag for tag in used if tag in {"style", "script"}] == ["style", "script", "script"]
        assert set(used) <= {tag for tag, _ in plain.tags} | {"code"}
        assert page.texts["script"][1] == plain.texts["script"][1]
        assert [row[0] for row in page.data["findings"]] == [one.finding_id for one in report.findings]
        "".join(format_html(report)).encode()

    @pytest.mark.parametrize("name", HOSTILE)
    def test_a_hostile_name_is_shown_and_does_nothing(self, name: str) -> None:
        report = Report(
            [finding(1, Location("file", name, 1, 1, 5), rule="r" + name.replace("\udcff", ""))],
            facts=ReportFacts(sources=[SourceFacts("file", name)], tenant=name),
        )
        page = page_of(report)
        assert [tag for tag, _ in page.tags].count("script") == 2
        assert "img" not in [tag for tag, _ in page.tags]
        (row,) = page.data["findings"]
        assert row[5] == shown(name)

    def test_no_byte_of_a_block_of_data_ends_it(self) -> None:
        text = embedded({"a": "</script><!--&\u2028"})
        assert not set("<>&\u2028") & set(text)
        assert json.loads(text) == {"a": "</script><!--&\u2028"}

    def test_no_hash_of_a_secret_is_in_it(self) -> None:
        assert not any(bytes.hex(secret)[:12] in "".join(format_html(REPORT)) for secret in SECRETS)

    def test_findings_of_one_secret_share_a_number(self) -> None:
        groups = [row[2] for row in page_of(REPORT).data["findings"]]
        assert groups == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2]


class TestSummary:
    """What stands on top."""

    def test_says_how_much_there_is_to_do(self) -> None:
        text = "".join(format_html(REPORT))
        assert page_of(REPORT).texts["h1"] == ["4 open secrets in 8 files, 1 finding confirmed"]
        assert "of 11 in total" in text
        assert "90\u202f%" in text
        assert "Findings left out: 3 by baseline." in text
        assert "scanned 2023-11-14 22:14:54 UTC in 1 min 34 s" in text

    def test_says_so_when_there_is_nothing(self) -> None:
        assert page_of(Report([])).texts["h1"] == ["No open secrets"]
