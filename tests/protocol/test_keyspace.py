"""Keys sort as what they stand for, and between two keys there is one, if there can be."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import InvalidInput
from strandline.protocol.errors import SpecInvalid
from strandline.protocol.keyspace import (
    Hint,
    ManifestHint,
    ManifestRowKey,
    Metadata,
    PrefixHint,
    RangeHint,
    cut_spec,
    format_manifest_row,
    format_metadata,
    narrow_hint,
    parse_manifest_row,
    parse_metadata,
    prefix_successor,
)
from strandline.protocol.shards import ShardSpec

keys = st.binary(max_size=6) | st.lists(st.sampled_from([0, 1, 254, 255]), max_size=6).map(bytes)
u64 = st.integers(0, 2**64 - 1)
rows = st.builds(ManifestRowKey, u64, u64)
manifests = st.builds(
    lambda number, ends: ManifestHint(number, *sorted(ends)), u64, st.sets(u64, min_size=2, max_size=2)
)
hints: st.SearchStrategy[Hint] = st.just(RangeHint()) | st.builds(PrefixHint, keys) | manifests


@given(rows, rows)
def test_manifest_rows_sort_as_their_keys(left: ManifestRowKey, right: ManifestRowKey) -> None:
    assert (left < right) == (format_manifest_row(left) < format_manifest_row(right))
    assert parse_manifest_row(format_manifest_row(left)) == left


@given(st.builds(Metadata, hints, st.binary(max_size=9)))
def test_metadata_is_read_as_it_was_written(metadata: Metadata) -> None:
    assert parse_metadata(format_metadata(metadata)) == metadata


def test_known_bytes_of_metadata() -> None:
    assert parse_metadata(b"") == Metadata(RangeHint(), b"")
    assert format_metadata(Metadata(RangeHint(), b"x")) == b"\0\0\0\x01\0x"
    assert format_metadata(Metadata(PrefixHint(b"ab"))) == b"\0\0\0\x07\x01\0\0\0\x02ab"
    manifest = b"\0\0\0\x19\x02" + b"".join(number.to_bytes(8, "big") for number in (1, 2, 3))
    assert format_metadata(Metadata(ManifestHint(1, 2, 3))) == manifest


@pytest.mark.parametrize(
    "data",
    [
        b"\0",
        b"\0\0\0\x02\0",
        b"\0\0\0\0",
        b"\0\0\0\x01\x03",
        b"\0\0\0\x02\0\0",
        b"\0\0\0\x06\x01\0\0\0\x02a",
        b"\0\0\0\x07\x01\0\0\0\x01ab",
        b"\0\0\0\x19\x02" + (b"\0" * 7 + b"\x05") * 3,
        b"\0\0\0\x02\x02\0",
    ],
)
def test_broken_metadata_is_refused(data: bytes) -> None:
    with pytest.raises(SpecInvalid):
        parse_metadata(data)


@given(keys, keys)
def test_the_successor_of_a_prefix_is_the_first_key_behind_it(prefix: bytes, key: bytes) -> None:
    after = prefix_successor(prefix)
    if after is None:
        assert prefix.strip(b"\xff") == b""
        return
    assert after > prefix
    if key.startswith(prefix):
        assert key < after
    elif key > prefix:
        assert key >= after


def test_known_successors_of_prefixes() -> None:
    assert prefix_successor(b"ab\xff") == b"ac"
    assert prefix_successor(b"") is None
    assert prefix_successor(b"\xff\xff") is None


@given(st.sets(keys.filter(bool), min_size=1, max_size=5), hints)
def test_a_range_that_is_cut_is_the_whole(cuts: set[bytes], hint: Hint) -> None:
    metadata = b"" if isinstance(hint, ManifestHint | PrefixHint) else format_metadata(Metadata(hint, b"more"))
    parts = cut_spec(ShardSpec(b"", b"", metadata), sorted(cuts))
    assert [part.start for part in parts] == [b"", *sorted(cuts)]
    assert [part.end for part in parts] == [*sorted(cuts), b""]
    assert {part.metadata for part in parts} == {metadata}


@given(u64, st.sets(u64, min_size=3, max_size=6))
def test_the_rows_of_a_manifest_are_cut_exactly(manifest: int, numbers: set[int]) -> None:
    first, *cuts, last = sorted(numbers)
    start, end, *keyed = (format_manifest_row(ManifestRowKey(manifest, row)) for row in (first, last, *cuts))
    spec = ShardSpec(start, end, format_metadata(Metadata(ManifestHint(manifest, first, last), b"more")))
    found = [parse_metadata(part.metadata) for part in cut_spec(spec, keyed)]
    bounds = [first, *cuts, last]
    wanted = [ManifestHint(manifest, *pair) for pair in pairwise(bounds)]
    assert found == [Metadata(hint, b"more") for hint in wanted]


def test_hints_are_narrowed_and_never_widened() -> None:
    assert narrow_hint(PrefixHint(b"ab"), ShardSpec(b"ab", b"ab\x05")) == RangeHint()
    assert narrow_hint(PrefixHint(b"\xff"), ShardSpec(b"\xff\x01")) == RangeHint()
    for part in (ShardSpec(b"aa", b"ab"), ShardSpec(b"ab", b"ad"), ShardSpec(b"ab")):
        with pytest.raises(SpecInvalid):
            narrow_hint(PrefixHint(b"ab"), part)
    hint = ManifestHint(1, 10, 20)
    assert narrow_hint(hint, ShardSpec()) == hint
    for row in (ManifestRowKey(1, 9), ManifestRowKey(2, 15), ManifestRowKey(1, 20)):
        with pytest.raises(SpecInvalid):
            narrow_hint(hint, ShardSpec(format_manifest_row(row)))
    with pytest.raises(InvalidInput):
        narrow_hint(hint, ShardSpec(b"short"))


def test_cuts_outside_of_a_range_are_refused() -> None:
    for cuts in ([b"a"], [b"z"], [b"m", b"c"], [b"m", b"m"], [b""]):
        with pytest.raises(SpecInvalid):
            cut_spec(ShardSpec(b"b", b"y"), cuts)
        with pytest.raises(SpecInvalid):
            cut_spec(ShardSpec(), [b""])


def test_keys_that_are_not_what_they_should_be_are_refused() -> None:
    with pytest.raises(InvalidInput):
        parse_manifest_row(b"\0" * 15)
    with pytest.raises(InvalidInput):
        format_manifest_row(ManifestRowKey(1, 2**64))
    with pytest.raises(SpecInvalid):
        format_metadata(Metadata(ManifestHint(1, 5, 5)))


def test_hints_show_no_key() -> None:
    assert "SECRET" not in repr(Metadata(PrefixHint(b"SECRET"), b"SECRET"))
