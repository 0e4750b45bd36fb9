"""Locations: what a URL says is read back, whatever a path is called; texts fit, show no control and can be stored."""

import os
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from strandline.detect.locations import (
    Location,
    format_display,
    format_url,
    location_of,
    parse_url,
    read_location,
)
from strandline.detect.results import Found
from strandline.errors import InvalidInput
from strandline.pipeline.findings import LOCATION_BYTES_MAX
from strandline.pipeline.identity import RuleFingerprint, SecretHash
from strandline.pipeline.text_fields import check_text

names = st.binary(max_size=60).map(os.fsdecode) | st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
counts = st.integers(0, 2**63 - 1)
locations = st.builds(
    Location,
    source=st.sampled_from(["file", "git", "table", "journal", "web+x"]),
    path=names,
    line=counts,
    column=counts,
    confidence=st.integers(0, 10),
    via=st.lists(names.filter(bool), max_size=4).map(tuple),
    commit=st.text("0123456789abcdef", max_size=64),
    row=names,
    field=names,
)
long_names = st.builds(
    lambda part, times: os.fsdecode(part * times), st.binary(min_size=1, max_size=20), st.sampled_from([1, 60, 600])
)
long_locations = st.builds(
    Location,
    st.just("file"),
    long_names,
    via=st.lists(long_names, max_size=3).map(tuple),
    row=long_names,
    field=long_names,
)


class TestRoundTrip:
    """Written and read back."""

    @given(locations)
    @example(Location("file", "a#b?c&d=e%f+g,h i", via=("a,b", "c&d"), row="&line=2", field="é\n"))
    def test_a_url_is_read_back_as_it_was(self, location: Location) -> None:
        assert parse_url(format_url(location)) == location

    @given(long_locations)
    def test_what_is_too_long_is_read_back_as_it_was_fitted(self, location: Location) -> None:
        assert parse_url(format_url(location)) == location.fitted == location.fitted.fitted

    @given(locations | long_locations)
    def test_both_texts_can_be_stored_and_shown(self, location: Location) -> None:
        for text in (format_url(location), format_display(location)):
            check_text(text, "a location", LOCATION_BYTES_MAX)
            assert not any(unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"} for character in text)
        assert format_url(location).isascii()


@pytest.mark.parametrize(
    ("location", "url", "display"),
    [
        (
            Location("file", "src/app.py", 12, 5, 8, ("base64",)),
            "file:src/app.py#line=12&column=5&confidence=8&via=base64",
            "src/app.py:12:5",
        ),
        (
            Location("git", "src/app.py", 12, 5, commit="1a2b3c4d5e6f"),
            "git:src/app.py#line=12&column=5&commit=1a2b3c4d5e6f",
            "src/app.py@1a2b3c4:12:5",
        ),
        (
            Location("table", "orders.parquet", 1, 9, row="42", field="notes"),
            "table:orders.parquet#line=1&column=9&row=42&field=notes",
            "orders.parquet#42/notes:1:9",
        ),
        (
            Location("journal", "journal", 1, 1, row="1042"),
            "journal:journal#line=1&column=1&row=1042",
            "journal@1042:1:1",
        ),
        (
            Location("file", "a.zip!b/c.txt", 3, 1, via=("zip",)),
            "file:a.zip!b/c.txt#line=3&column=1&via=zip",
            "a.zip!b/c.txt:3:1",
        ),
        (Location("file", "id_rsa"), "file:id_rsa", "id_rsa"),
        (Location("file", ""), "file:", "file"),
    ],
)
def test_texts_are_as_documented(location: Location, url: str, display: str) -> None:
    assert (format_url(location), format_display(location)) == (url, display)
    assert parse_url(url) == location


def test_what_a_terminal_would_obey_is_written_out() -> None:
    location = Location("file", os.fsdecode(b"a\x1b[31m\n\xff/") + "\u202etxt.exe", 1, 1)
    assert format_display(location) == r"a\x1b[31m\x0a\xff/\u202etxt.exe:1:1"


def test_a_long_path_keeps_its_end_and_its_point() -> None:
    location = Location("file", "folder/" * 2000 + "name.txt", 7, 9)
    assert format_display(location).startswith("folder/folder/")
    assert format_display(location).endswith("/folder/name.txt:7:9")
    assert "…" in parse_url(format_url(location)).path
    assert len(format_url(location)) == LOCATION_BYTES_MAX


def test_a_half_of_a_surrogate_pair_still_has_a_url() -> None:
    assert format_url(Location("file", "a\ud800")) == "file:a?".replace("?", "%3F")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "src/app.py",
        "file:a#line=x",
        "file:a#line=01",
        "file:a#line=1&line=1",
        "file:a#column=2&line=1",
        "file:a#colour=red",
        "file:a#line",
        "file:a b",
        "file:a#confidence=11",
        "file:a#commit=xyz",
        "file:a#via=",
        "File:a",
        "file:a#line=99999999999999999999",
    ],
)
def test_a_url_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_url(text)


def test_a_location_of_another_program_is_its_text() -> None:
    assert read_location("config.py:4", None) == Location("other", "config.py:4")
    assert read_location("config.py:4", "https://example.org/x#L4") == Location("other", "config.py:4")
    assert read_location(None, None) == Location("other", "")
    assert read_location("x", "file:src/app.py#line=12") == Location("file", "src/app.py", 12)


@pytest.mark.parametrize(
    ("field", "value"),
    [("line", -1), ("column", 2**63), ("confidence", 11), ("commit", "HEAD"), ("via", ("",)), ("source", "a b")],
)
def test_a_location_that_cannot_be_is_refused(field: str, value: object) -> None:
    with pytest.raises(InvalidInput):
        Location(**{"source": "file", "path": "a", field: value})  # type: ignore[arg-type]


def test_a_finding_of_the_engine_has_a_location_without_what_was_found() -> None:
    found = Found(
        *("aws", RuleFingerprint(bytes(32)), 3, 23, 2, 4, SecretHash(bytes(range(32))), 9),
        via=("zip:in/b.txt", "base64"),
        path="a.zip!in/b.txt",
    )
    assert location_of("file", found) == Location("file", "a.zip!in/b.txt", 2, 4, 9, ("zip", "base64"))
