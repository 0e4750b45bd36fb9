"""Listings carry what they left out, and parts lead to places that people know."""

import io
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline.detect import Engine, Found, parse_rules
from strandline.detect.locations import Location, format_display, format_url, parse_url
from strandline.journal import Journal
from strandline.pipeline.identity import TenantSecretKey
from strandline.scan.sources import (
    LISTING,
    FileSource,
    GitSource,
    JournalSource,
    Part,
    Source,
    TableSource,
    left_out,
    location,
)
from strandline.scan.sources.source import Row, batches
from tests.scan.sources.helpers import Repository, ignore, listed, write

FOUND = Found("rule", b"f" * 32, 3, 9, 2, 5, b"s" * 32, 8, path="a.txt")  # type: ignore[arg-type]


def test_the_last_batch_says_what_was_left_out() -> None:
    rows: list[Row] = [(b"%06d" % number, None, 1, None, None, None) for number in range(10_001)]
    first, last = batches(rows, ignore, {"b": 2, "a": 1})
    assert left_out(first) == {}
    assert left_out(last) == {"a": 1, "b": 2}
    assert (first.num_rows, last.num_rows) == (10_000, 1)


def test_listings_without_rows_say_it_too() -> None:
    (only,) = batches([], ignore, {"excluded": 3})
    assert only.num_rows == 0
    assert left_out(only) == {"excluded": 3}


def test_batches_are_one_table_and_one_stream_although_the_last_says_more() -> None:
    rows: list[Row] = [(b"%06d" % number, None, 1, None, None, None) for number in range(10_001)]
    listed_batches = list(batches(rows, ignore, {"a": 1}))
    assert pa.Table.from_batches(listed_batches).num_rows == 10_001
    out = io.BytesIO()
    with pa.ipc.new_stream(out, LISTING) as writer:
        for batch in listed_batches:
            writer.write_batch(batch)
    assert pa.ipc.open_stream(out.getvalue()).read_all().num_rows == 10_001


def test_parts_never_show_their_bytes() -> None:
    assert "secret" not in repr(Part(b"secret", "path"))


class Tagged:
    """As much of a source as a location needs."""

    def __init__(self, tag: str) -> None:
        self.tag = tag


@pytest.mark.parametrize(
    ("tag", "part", "shown"),
    [
        ("fs", Part(b"", "a.txt"), "a.txt:2:5"),
        ("git", Part(b"", "a.txt", commit="1a2b3c4d" * 5), "a.txt:2:5"),
        ("table", Part(b"", "a.txt", row="42", field="notes"), "a.txt#42/notes:2:5"),
        ("journal", Part(b"", "a.txt", row="1042"), "a.txt@1042:2:5"),
        ("other", Part(b"", "a.txt"), "a.txt:2:5"),
    ],
)
def test_a_finding_in_a_part_has_a_location(tag: str, part: Part, shown: str) -> None:
    source: Any = Tagged(tag)
    found = location(source, part, FOUND)
    assert (found.commit, found.row, found.field) == ("", part.row, part.field)
    assert format_display(found) == shown
    assert parse_url(format_url(found)) == found


SECRET = b"token = tok-" + b"1234567890"
RULES = """
[[rules]]
id = "token"
description = "a token"
regex = 'tok-[0-9]{10}'
keywords = ["tok-"]
"""


def sources(folder: Path) -> dict[str, Source]:
    """Every kind of source with the same secret in it."""
    data = b"first line\n" + SECRET
    write(folder / "files", {"app.py": data})
    Repository(folder / "repo").commit({"app.py": data})
    pq.write_table(pa.table({"id": [7], "notes": [data]}), folder / "orders.parquet")
    with Journal.open(folder / "events") as journal:
        journal.append([b"nothing", data])
    return {
        "app.py": FileSource.at(folder / "files"),
        "app.py:2": GitSource.at(folder / "repo"),
        "orders.parquet#7/notes": TableSource.at(f"parquet:{folder / 'orders.parquet'}", key="id"),
        "events@1": JournalSource.at(folder / "events"),
    }


def test_what_the_engine_finds_in_any_source_has_a_place(tmp_path: Path) -> None:
    engine = Engine(parse_rules(RULES), key=TenantSecretKey(bytes(32)))
    for shown, source in sources(tmp_path).items():
        places: list[Location] = []
        with source.open() as reader:
            for row in listed(source):
                for part in reader.read(row["locator"], row["extra"]).parts:
                    result = engine.scan(part.data, part.path, part.commit)
                    places += [location(source, part, found) for found in result.findings]
        assert len(places) == 1
        assert format_display(places[0]).startswith(shown)
        assert places[0].line == 2


def test_a_name_that_is_not_utf_8_comes_back_from_the_engine_and_the_url(tmp_path: Path) -> None:
    name = b"caf\xe9.py"
    with open(os.path.join(os.fsencode(tmp_path), name), "wb") as file:  # noqa: PTH118, PTH123 - bytes
        file.write(SECRET)
    source = FileSource.at(tmp_path)
    with source.open() as reader:
        (part,) = reader.read(name, None).parts
    (found,) = Engine(parse_rules(RULES), key=TenantSecretKey(bytes(32))).scan(part.data, part.path).findings
    place = location(source, part, found)
    assert parse_url(format_url(place)).path.encode(errors="surrogateescape") == name
    assert format_display(place) == "caf\\xe9.py:1:9"
