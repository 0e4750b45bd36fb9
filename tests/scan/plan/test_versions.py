"""Identities of listed items: derived once, and the same when they are asked for again."""

from pathlib import Path

import pyarrow as pa
import pytest

from strandline.scan.plan import versions
from strandline.scan.plan.versions import identified, identified_again
from strandline.scan.sources import LISTING, StatCache
from tests.scan.things import Things


def test_items_whose_versions_were_listed_keep_their_identities(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [[b"a", b"b"], [b"1", b"weak:none"], [1, None], [None, None], [None, None], [None, "VANISHED"]]
    batch = pa.record_batch([pa.array(*pair) for pair in zip(cells, LISTING.types, strict=True)], LISTING)
    some_versions = batch.set_column(1, LISTING.field("version"), pa.array([b"1", None], pa.binary()))
    cache = StatCache([])
    listed = [identified(0, Things(Path("things.json")), each, cache) for each in (batch, some_versions)]
    assert [each["ovid"].null_count for each in listed] == [0, 1]
    monkeypatch.setattr(versions, "ovid_column", lambda *_: pytest.fail("a key was derived again"))
    assert [identified_again(each, cache) for each in listed] == listed
