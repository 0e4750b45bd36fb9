"""Texts out of scanned data, in pages and in charts: escaped, and without characters that hide or reorder others."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from strandline.web import charts
from strandline.web.rendering import utc, visible
from tests.cli.scanned import FakeSource, hit, scan
from tests.web.sites import serve_state

HOSTILE = "a<script>b</script>\"'&\u202egnp\x1b[31m\u200b"


@pytest.mark.parametrize("character", ["\u202e", "\x1b", "\x00", "\u200b", "\u2028", "\ue000", "\U000e0041"])
def test_characters_that_are_not_seen_are_written_as_codes(character: str) -> None:
    shown = visible(f"a{character}b")
    assert character not in shown
    assert f"{ord(character):02x}" in shown


@pytest.mark.parametrize(
    "draw",
    [
        lambda text: charts.line([(0, 1), (1, 2)], text),
        lambda text: charts.share([("done", 1)], text),
        lambda text: charts.shard_map([], text),
        lambda text: charts.shard_map([charts.Cell("done", text)], "map"),
        lambda text: charts.shard_map([charts.Cell("done", text, text)], "map"),
        lambda text: charts.timeline([charts.Mark(1, "whole", text)], 2, "points"),
        lambda text: charts.timeline([charts.Mark(1, "whole", "x")], 2, text),
    ],
)
def test_texts_in_charts_are_escaped(draw: Callable[[str], str]) -> None:
    drawn = str(draw("\"'<script>&"))
    assert "<script>" not in drawn
    assert "&#34;&#39;&lt;script&gt;&amp;" in drawn


def test_a_hostile_name_of_a_source_is_text_on_every_page_that_has_it(tmp_path: Path) -> None:
    scan(tmp_path / "state", FakeSource("fs", HOSTILE, {"x.env": [hit("github-pat", "one", "x.env")]}))
    with serve_state(tmp_path / "state") as client:
        for path in ("/findings", "/findings/secrets", "/coverage"):
            text = client.get(path).text
            assert "&lt;script&gt;b" in text, path
            assert "<script>b" not in text, path
            assert r"\u202egnp\x1b[31m" in text, path
            seen = re.sub(r'value="[^"]*"', "", text)  # the value of a filter is sent back as it is, and is not shown
            assert not {"\u202e", "\x1b", "\u200b"} & set(seen), path


def test_a_chart_tells_its_last_and_highest_value_and_the_time_that_it_shows() -> None:
    told = charts.line([(0.0, 3.0), (60.0, 1234.0), (90.0, 7.25)], "messages behind", is_told=True)
    assert "now 7.2, at most 1,234 in the last 1 min 30 s" in told
    assert "now" not in charts.line([(0.0, 3.0), (1.0, 4.0)], "messages behind")


def test_a_time_names_its_zone() -> None:
    assert utc(1_700_000_000_000_000_000) == "2023-11-14 22:13:20 UTC"
