"""What jobs keep is read back as it was written, and what is none of it counts for nothing."""

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.cache import cache_folder
from strandline.detect import Engine, Limits, SavedEngine
from strandline.detect.matching import Layout, Reach
from strandline.errors import InvalidInput
from strandline.pipeline.identity import PolicyHash, VersionKind
from strandline.pipeline.state import MemoryState, Put
from strandline.scan.arrow_chunks import format_table
from strandline.scan.errors import ManifestBroken
from strandline.scan.plan.versions import Late, format_late, parse_late
from strandline.scan.run import manifest
from strandline.scan.run.manifest import ROWS, Row, delete_manifest, read_manifest, read_rows, rows_of, write_manifest
from strandline.scan.run.progress import Progress, rates
from strandline.scan.run.shard_cuts import SHARDS_PER_WORKER, SPLIT_WEIGHT_MIN, initial_shards, split_row
from strandline.scan.run.totals import Totals, format_totals, parse_totals
from strandline.scan.state import tenant_named
from strandline.scan.worker import engine_cache
from strandline.scan.worker.engine_cache import engine_for, format_saved, parse_saved
from tests.scan.threaded_workers import KEY, RULES, TENANT

U64 = st.integers(0, 2**64 - 1)


@given(st.tuples(*[U64] * len(Totals._fields)).map(Totals._make))
def test_totals_are_read_back(totals: Totals) -> None:
    assert parse_totals(format_totals(totals)) == totals


def test_a_token_of_another_version_counts_as_nothing() -> None:
    token = format_totals(Totals(1, 2, 3))
    for other in (b"", b"\x02" + token[1:], token[:-1], token + b"x"):
        assert parse_totals(other) == Totals()


@given(st.sampled_from(VersionKind), st.none() | st.binary(), st.binary(min_size=1))
def test_late_versions_are_read_back_for_the_same_stat_data_alone(
    kind: VersionKind, stat: bytes | None, version: bytes
) -> None:
    late = Late(kind, stat, version)
    assert parse_late(format_late(late), stat) == late
    assert parse_late(format_late(late), b"other" + (stat or b"")) is None
    assert parse_late(None, stat) is None
    assert parse_late(b"\x07" + format_late(late)[1:], stat) is None


NUMBERS = st.integers(0, 2**31)
TEXTS = st.lists(st.text(), max_size=3).map(tuple)
REACHES = st.lists(st.builds(Reach, st.lists(NUMBERS, max_size=3).map(tuple), NUMBERS, NUMBERS), max_size=3).map(tuple)
FIXED = st.lists(st.tuples(st.text(max_size=8), st.binary(max_size=8)), max_size=3).map(tuple)
CHECKS = st.lists(st.tuples(NUMBERS, st.binary(max_size=8)), max_size=3).map(tuple)
LAYOUTS = st.builds(Layout, REACHES, st.lists(NUMBERS, max_size=3).map(tuple), st.frozensets(NUMBERS), TEXTS)


@given(st.builds(SavedEngine, st.binary(), st.binary(), LAYOUTS, TEXTS, st.binary(), CHECKS, FIXED), st.data())
def test_a_cached_engine_is_read_back_whole_or_not_at_all(saved: SavedEngine, data: st.DataObject) -> None:
    written = format_saved(saved)
    assert parse_saved(written) == saved
    at = data.draw(st.integers(0, len(written) - 1))
    broken = bytearray(written)
    broken[at] ^= 1
    assert parse_saved(bytes(broken)) is None
    assert parse_saved(written[:at]) is None


def test_a_cached_engine_of_other_code_is_built_again() -> None:
    file = cache_folder() / "engines" / f"{RULES.policy(Limits()).hash.hex()}.hs"
    engine_cache._engines.clear()  # noqa: SLF001 - as another process would begin
    engine = engine_for(RULES, Limits(), KEY)
    stale = engine.saved()._replace(maker=bytes(32), layout=Layout((), (), frozenset(), ()))
    file.write_bytes(format_saved(stale))
    engine_cache._engines.clear()  # noqa: SLF001
    assert len(engine_for(RULES, Limits(), KEY).scan(b"alpha_123").findings) == 1
    assert parse_saved(file.read_bytes()) == engine.saved()


def test_an_engine_is_compiled_once_and_again_when_its_file_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    given_saved: list[SavedEngine | None] = []
    whole = Engine

    def spied(*args: object, **more: object) -> object:
        given_saved.append(more["saved"])  # type: ignore[arg-type]
        return whole(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr("strandline.scan.worker.engine_cache.Engine", spied)
    file = cache_folder() / "engines" / f"{RULES.policy(Limits()).hash.hex()}.hs"
    file.unlink(missing_ok=True)
    for expected in (False, True):
        engine_cache._engines.clear()  # noqa: SLF001 - as another process would begin
        engine = engine_for(RULES, Limits(), KEY)
        assert (given_saved[-1] is not None) is expected
        assert engine_for(RULES, Limits(), KEY) is engine
        assert len(engine.scan(b"alpha_123").findings) == 1
    assert len(given_saved) == 2
    before = file.read_bytes()
    file.write_bytes(before[:-5])
    engine_cache._engines.clear()  # noqa: SLF001
    assert len(engine_for(RULES, Limits(), KEY).scan(b"alpha_123").findings) == 1
    assert given_saved[-1] is None
    assert parse_saved(file.read_bytes()) is not None
    monkeypatch.setattr(engine_cache, "FILES_MAX", 1)
    engine_cache._engines.clear()  # noqa: SLF001
    engine_for(RULES, Limits(decode_depth=2), KEY)
    assert len(list(file.parent.iterdir())) == 1
    file.parent.chmod(0o500)
    try:
        engine_cache._engines.clear()  # noqa: SLF001
        assert len(engine_for(RULES, Limits(decode_depth=1), KEY).scan(b"alpha_123").findings) == 1
    finally:
        file.parent.chmod(0o700)


def rows(count: int, size: int = 10) -> pa.Table:
    cells = [Row(0, b"item %d" % at, None, size, None, None, None, -1) for at in range(count)]
    columns = [pa.array(column, kind) for column, kind in zip(zip(*cells, strict=True), ROWS.types, strict=True)]
    return pa.table(columns, schema=ROWS)


@pytest.mark.parametrize("count", [1, 4_096, 4_097, 9_000])
def test_a_manifest_is_read_back_by_rows(count: int) -> None:
    state, table = MemoryState(), rows(count)
    written = write_manifest(state, TENANT, 7, table.to_batches(), [PolicyHash(b"p" * 32)])
    assert read_manifest(state, TENANT, 7) == written
    assert read_manifest(state, TENANT, 8) is None
    for start, end in ((0, count), (count // 2, count), (0, 1), (count - 1, count)):
        parts = list(read_rows(state, TENANT, written, start, end))
        assert [first for first, _ in parts][:1] == [start]
        assert pa.concat_tables([part for _, part in parts]) == table.slice(start, end - start)
    assert rows_of(written.spec(0, count)) == (7, 0, count)
    delete_manifest(state, TENANT, written)
    assert read_manifest(state, TENANT, 7) is None
    with pytest.raises(ManifestBroken, match="is gone"):
        list(read_rows(state, TENANT, written, 0, 1))


def test_a_manifest_of_an_older_version_is_read_without_identities() -> None:
    state, table = MemoryState(), rows(5)
    written = write_manifest(state, TENANT, 7, table.to_batches(), [])
    older = table.select(ROWS.names[:8])
    head = json.loads(manifest._format_head(written)) | {"format": 1}  # noqa: SLF001
    state.apply_batch(TENANT, [Put(written.chunk_key(0), format_table(older))])
    state.apply_batch(TENANT, [Put(b"manifest/" + bytes(7) + b"\7", json.dumps(head).encode())])
    assert read_manifest(state, TENANT, 7) == written
    ((_, found),) = read_rows(state, TENANT, written, 0, 5)
    assert found == table
    assert found["item"].null_count == found["ovid"].null_count == 5
    state.apply_batch(TENANT, [Put(written.chunk_key(0), format_table(table.select(["source"])))])
    with pytest.raises(ManifestBroken, match="other columns"):
        list(read_rows(state, TENANT, written, 0, 1))


def test_large_rows_are_cut_into_chunks_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "CHUNK_BYTES_MAX", 2_000)
    state, table = MemoryState(), rows(300)
    written = write_manifest(state, TENANT, 1, table.to_batches(), [])
    assert len(written.starts) > 4
    assert pa.concat_tables([part for _, part in read_rows(state, TENANT, written, 0, 300)]) == table


@given(st.lists(st.integers(0, 64 << 20), min_size=1, max_size=60), st.integers(1, 8))
def test_shards_are_all_rows_once_and_of_about_equal_weight(sizes: list[int], parallelism: int) -> None:
    cells = [Row(0, b"%d" % at, None, size, None, None, None, -1) for at, size in enumerate(sizes)]
    columns = [pa.array(column, kind) for column, kind in zip(zip(*cells, strict=True), ROWS.types, strict=True)]
    table = pa.table(columns, schema=ROWS)
    written = write_manifest(MemoryState(), TENANT, 1, table.to_batches(), [])
    ranges = [rows_of(shard.spec) for shard in initial_shards(written, table["size"].chunks, parallelism)]
    assert [one.start for one in ranges] == [0, *(one.end for one in ranges[:-1])]
    assert ranges[-1].end == len(sizes)
    assert len(ranges) <= max(SHARDS_PER_WORKER * parallelism, sum(sizes) // (256 << 20))
    heaviest = max(sum(sizes[one.start : one.end]) for one in ranges)
    assert heaviest <= sum(sizes) / max(1, len(ranges)) * 2 + max(sizes) + (2 << 20)


@given(st.lists(st.integers(0, 3 << 20), min_size=1, max_size=200), st.data())
def test_the_middle_of_a_rest_is_inside_of_it(sizes: list[int], data: st.DataObject) -> None:
    cells = [Row(0, b"%d" % at, None, size, None, None, None, -1) for at, size in enumerate(sizes)]
    columns = [pa.array(column, kind) for column, kind in zip(zip(*cells, strict=True), ROWS.types, strict=True)]
    written = write_manifest(MemoryState(), TENANT, 1, pa.table(columns, schema=ROWS).to_batches(), [])
    start = data.draw(st.integers(0, len(sizes) - 1))
    end = data.draw(st.integers(start + 1, len(sizes)))
    for at_hand in (cells, cells[: len(cells) // 2], []):
        at = split_row(written, start, end, 0, at_hand)
        assert at is None or start < at < end
    left = sum(sizes[start:end]) + 4096 * (end - start)
    assert end - start < 2 or left < SPLIT_WEIGHT_MIN or split_row(written, start, end, 0, cells) is not None


def test_rates_say_how_long_the_rest_takes() -> None:
    before = Progress(Totals(items=10, bytes=1_000), 100, 10_000, 2, 0, 0)
    now = before._replace(done=Totals(items=30, bytes=2_000))
    assert rates(before, now, 10) == (2.0, 100.0, 80.0)
    assert rates(before, before, 10) == (0.0, 0.0, None)
    assert rates(before, now, 0) == (0.0, 0.0, None)
    assert rates(before, now._replace(done=Totals(items=100, bytes=9_000)), 1).left_s == 0.0


def test_tenants_are_named() -> None:
    assert tenant_named("default").hex() == tenant_named("default").hex()
    assert tenant_named("default") != tenant_named("other")
    for wrong in ("", "a\0b", "x" * 300):
        with pytest.raises(InvalidInput, match="tenant"):
            tenant_named(wrong)
