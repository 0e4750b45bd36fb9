"""The sink without Spark: every commit once, wherever it was cut short, and nothing dropped that was not appended."""

import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import Damaged, FormatError, InvalidInput, Locked, RecordTooLarge
from strandline.journal import Journal
from strandline.spark.journals import SinkUnsure, records, sink
from strandline.spark.journals.records import check_writable, records_of, staged_schema
from strandline.spark.journals.sink import JournalSink, home_of, load_state
from strandline.spark.journals.sink_state import ANONYMOUS, Done, Intent, SinkState, format_state, parse_state
from strandline.spark.sink import Commit, StagedFile, stage, writers
from strandline.spark.sink import commit_rows as commit_to
from strandline.spark.sink.writers import SinkBatchWriter, SinkStreamWriter
from tests.spark.journals.helpers import fill, numbered, trim, values
from tests.spark.journals.helpers import records as read_records
from tests.waiting import PATIENCE_S

SCHEMA = pa.schema([("value", pa.string()), ("key", pa.binary())])


class Killed(BaseException):
    """Stands for the end of the process."""


class OfABatch:
    """Stands for the context of a task of a streaming query."""

    @classmethod
    def get(cls) -> "OfABatch":
        return cls()

    def getLocalProperty(self, name: str) -> str:  # noqa: N802 - Spark's name
        return {writers.QUERY_PROPERTY: "q", writers.BATCH_PROPERTY: "7"}[name]


def rows(*texts: str, keys: Sequence[bytes | None] | None = None) -> pa.RecordBatch:
    return pa.record_batch([pa.array(texts), pa.array(keys or [None] * len(texts), pa.binary())], schema=SCHEMA)


def staged(path: Path, *batches: pa.RecordBatch, name: str = "q-0") -> StagedFile:
    return stage(JournalSink(str(path)).staging_folder(name), batches, staged_schema(SCHEMA), records_of)


def commit_rows(path: str, commit: Commit, files: Sequence[StagedFile]) -> Done | None:
    """Commit, and return what the sink knows of the writer."""
    commit_to(JournalSink(path), commit, files)
    with Journal.open(path) as journal:
        return load_state(path, journal.identity).commits.get(commit.writer)


def commit(path: Path, number: int, *texts: str, query: str = "query/a") -> Done | None:
    return commit_rows(str(path), Commit(query, number), [staged(path, rows(*texts))])


@pytest.fixture
def in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every staged batch a piece of its own."""
    monkeypatch.setattr(records, "PIECE_BYTES_MAX", 1)


def killed_at_store(monkeypatch: pytest.MonkeyPatch, at: int, *, after: bool) -> None:
    """Kill the process at the n-th time that the state is stored, before or after that happened."""
    store, count = sink.store_state, [0]

    def stored(path: str, state: SinkState) -> None:
        count[0] += 1
        if count[0] == at and not after:
            raise Killed
        store(path, state)
        if count[0] == at:
            raise Killed

    monkeypatch.setattr(sink, "store_state", stored)


def killed_at_append(monkeypatch: pytest.MonkeyPatch, at: int, *, after: bool) -> None:
    """Kill the process at the n-th append, before or after it happened."""
    append, count = Journal.append, [0]

    def appended(journal: Journal, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        count[0] += 1
        if count[0] == at and not after:
            raise Killed
        receipt = append(journal, *args, **kwargs)
        if count[0] == at:
            raise Killed
        return receipt

    monkeypatch.setattr(Journal, "append", appended)


def test_rows_become_records_in_the_order_of_partitions(tmp_path: Path) -> None:
    path = tmp_path / "j"
    files = [staged(path, rows("a", "b"), rows("c")), staged(path, rows()), staged(path, rows("d"))]
    assert commit_rows(str(path), Commit("query/a", 0), files) == Done(0, 4, 4, 0, 4)
    assert values(path) == [b"a", b"b", b"c", b"d"]


def test_a_commit_is_one_atomic_batch(tmp_path: Path) -> None:
    path = tmp_path / "j"
    files = [staged(path, rows("a"), rows("b")), staged(path, rows("c"))]
    commit_rows(str(path), Commit("query/a", 0), files)
    with Journal.open(path) as journal:
        assert [len(batch) for batch in journal.scan(0)] == [3]


def test_rows_without_keys_among_rows_with_keys_keep_their_order(tmp_path: Path) -> None:
    path = tmp_path / "j"
    batch = rows("a", "b", "c", "d", keys=[b"k", None, None, b"l"])
    commit_rows(str(path), Commit("query/a", 0), [staged(path, batch, rows("e", keys=[b"m"]))])
    assert [(record.value, record.key) for record in read_records(path)] == [
        (b"a", b"k"),
        (b"b", None),
        (b"c", None),
        (b"d", b"l"),
        (b"e", b"m"),
    ]


def test_timestamps_become_nanoseconds_and_may_be_missing(tmp_path: Path) -> None:
    path, schema = tmp_path / "j", pa.schema([("value", pa.binary()), ("timestamp", pa.timestamp("us", tz="UTC"))])
    batch = pa.record_batch([pa.array([b"a", b"b"]), pa.array([7, None], schema.field(1).type)], schema=schema)
    file = stage(JournalSink(str(path)).staging_folder("w"), [batch], staged_schema(schema), records_of)
    commit_rows(str(path), Commit(ANONYMOUS, 0), [file])
    assert [record.timestamp_ns for record in read_records(path)] == [7000, None]


def test_t7_a_replayed_batch_is_dropped_and_another_query_with_the_same_number_is_not(tmp_path: Path) -> None:
    path = tmp_path / "j"
    first = commit(path, 0, "a", "b")
    assert commit(path, 0, "a", "b") == first
    commit(path, 1, "c")
    assert commit(path, 0, "a2", "b2", query="query/new checkpoint") == Done(0, 2, 4, 3, 5)
    assert values(path) == [b"a", b"b", b"c", b"a2", b"b2"]


def test_t6_a_checkpoint_that_lost_its_last_batches_is_refused_rather_than_its_rows_dropped(tmp_path: Path) -> None:
    path = tmp_path / "j"
    commit(path, 0, "a", "b")
    with pytest.raises(SinkUnsure, match="committed number 0 with 2 rows"):
        commit(path, 0, "a", "b", "more than the batch had before")
    commit(path, 1, "c")
    with pytest.raises(SinkUnsure, match="comes again with number 0"):
        commit(path, 0, "a", "b")
    assert values(path) == [b"a", b"b", b"c"]


def test_a_write_without_a_name_is_appended_each_time_and_leaves_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "j"
    for _ in range(2):
        commit(path, 0, "a", query=ANONYMOUS)
    assert values(path) == [b"a", b"a"]
    with Journal.open(path) as journal:
        assert load_state(str(path), journal.identity) == SinkState(journal.identity, {})


@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.parametrize("after", [False, True])
def test_a_commit_killed_around_its_notes_is_there_once_after_the_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, after: bool
) -> None:
    path = tmp_path / "j"
    fill(path, 3)
    with monkeypatch.context() as patch:
        killed_at_store(patch, at, after=after)
        with pytest.raises(Killed):
            commit(path, 0, "a", "b")
    commit(path, 0, "a", "b")
    commit(path, 1, "c")
    assert values(path) == [*numbered(0, 3), b"a", b"b", b"c"]


@pytest.mark.usefixtures("in_pieces")
@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("is_foreign", [False, True])
def test_a_commit_killed_between_its_pieces_is_finished_from_what_was_staged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, after: bool, is_foreign: bool
) -> None:
    path = tmp_path / "j"
    file = staged(path, rows("a"), rows("b"), rows("c"))
    with monkeypatch.context() as patch:
        killed_at_append(patch, at, after=after)
        with pytest.raises(Killed):
            commit_rows(str(path), Commit("query/a", 0), [file])
    if is_foreign:
        with Journal.open(path) as journal:
            journal.append([b"a", b"foreign"])
    replay = staged(path, rows("a"), rows("b"), rows("c"), name="q-0-again")
    commit_rows(str(path), Commit("query/a", 0), [replay])
    read = values(path)
    if is_foreign:
        at_foreign = read.index(b"foreign")
        del read[at_foreign - 1 : at_foreign + 1]
    assert read == [b"a", b"b", b"c"]


@pytest.mark.usefixtures("in_pieces")
@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("after", [False, True])
def test_a_commit_killed_again_while_it_is_finished_is_there_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, after: bool
) -> None:
    path = tmp_path / "j"
    batches = [rows(text) for text in "abcde"]
    for kill_at, kill_after in ((2, True), (at, after)):
        with monkeypatch.context() as patch:
            killed_at_append(patch, kill_at, after=kill_after)
            with pytest.raises(Killed):
                commit_rows(str(path), Commit("query/a", 0), [staged(path, *batches)])
        with Journal.open(path) as journal:
            journal.append([b"foreign"])
    commit_rows(str(path), Commit("query/a", 0), [staged(path, *batches)])
    assert [value for value in values(path) if value != b"foreign"] == [b"a", b"b", b"c", b"d", b"e"]


@pytest.mark.usefixtures("in_pieces")
def test_the_commit_of_another_writer_finishes_what_was_cut_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "j"
    with monkeypatch.context() as patch:
        killed_at_append(patch, 1, after=True)
        with pytest.raises(Killed):
            commit_rows(str(path), Commit("query/a", 0), [staged(path, rows("a"), rows("b"))])
    commit(path, 5, "x", query="query/b")
    assert values(path) == [b"a", b"b", b"x"]
    commit_rows(str(path), Commit("query/a", 0), [staged(path, rows("b"), rows("a"))])
    assert values(path) == [b"a", b"b", b"x"], "the replay is known, though its rows come in another order"


@pytest.mark.usefixtures("in_pieces")
@pytest.mark.parametrize("is_stream", [False, True])
def test_a_commit_that_fails_between_its_pieces_is_finished_although_spark_aborts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_stream: bool
) -> None:
    fill(tmp_path / "j", 0)
    path = str(tmp_path / "j")
    monkeypatch.setattr(writers, "TaskContext", OfABatch)

    def write() -> None:
        """Write as Spark does: whatever a commit raises, what was staged is aborted."""
        target = JournalSink(path)
        writer: Any = SinkStreamWriter(target, SCHEMA) if is_stream else SinkBatchWriter(target, SCHEMA, "one")
        messages = [writer.write(iter([rows(text)])) for text in ("a", "b", "c")]
        batch = (7,) if is_stream else ()
        try:
            writer.commit(messages, *batch)
        except BaseException:
            writer.abort(messages, *batch)
            raise

    with monkeypatch.context() as patch:
        killed_at_append(patch, 2, after=False)
        with pytest.raises(Killed):
            write()
    write()
    assert values(tmp_path / "j") == [b"a", b"b", b"c"]


def test_an_abort_leaves_nothing_behind(tmp_path: Path) -> None:
    fill(tmp_path / "j", 0)
    path = str(tmp_path / "j")
    writer = SinkBatchWriter(JournalSink(path), SCHEMA)
    writer.abort([writer.write(iter([rows("a")]))])
    assert list((home_of(path) / "staged").iterdir()) == []


@pytest.mark.usefixtures("in_pieces")
def test_staged_rows_that_are_gone_before_the_commit_was_finished_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "j"
    with monkeypatch.context() as patch:
        killed_at_append(patch, 1, after=True)
        with pytest.raises(Killed):
            commit_rows(str(path), Commit("query/a", 0), [staged(path, rows("a"), rows("b"))])
    shutil.rmtree(home_of(str(path)) / "staged")
    with pytest.raises(SinkUnsure, match="1 of the 2 rows"):
        commit(path, 0, "a", "b")


def test_a_commit_whose_place_was_trimmed_before_it_was_settled_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "j"
    with monkeypatch.context() as patch:
        killed_at_store(patch, 2, after=False)
        with pytest.raises(Killed):
            commit(path, 0, "a", "b")
    fill(path, 1000)
    assert trim(path, 500) > 2
    with pytest.raises(SinkUnsure, match="is unknown"):
        commit(path, 0, "a", "b")


def test_a_commit_waits_for_the_lock_of_another_and_gives_up_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "j"
    journal = Journal.open(path)
    monkeypatch.setattr(sink, "LOCK_WAIT_S", 0.05)
    with pytest.raises(Locked):
        commit(path, 0, "a")
    monkeypatch.setattr(sink, "LOCK_WAIT_S", PATIENCE_S)
    closing = threading.Timer(0.1, journal.close)
    closing.start()
    commit(path, 0, "a")
    closing.join()
    assert values(path) == [b"a"]


def test_the_state_of_another_journal_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "j"
    commit(path, 0, "a")
    shutil.rmtree(path)
    with pytest.raises(FormatError, match="another journal"):
        commit(path, 1, "b")


def test_a_damaged_state_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "j"
    commit(path, 0, "a")
    file = home_of(str(path)) / "sink"
    file.write_bytes(file.read_bytes().replace(b"[0, 1,", b"[0, 2,"))
    with pytest.raises(Damaged, match="not whole"):
        commit(path, 1, "b")
    file.write_bytes(file.read_bytes().replace(b"[0, 2,", b"[0, 1,").replace(b"sink 1", b"sink 2"))
    with pytest.raises(FormatError, match="version 2"):
        commit(path, 1, "b")


commits = st.builds(Commit, st.text(max_size=9), st.integers(0, 2**63))
counts = st.integers(0, 2**63)
intents = st.builds(Intent, commits, counts, counts, counts, counts, counts, st.lists(st.text(max_size=9)).map(tuple))


@given(
    st.binary(min_size=16, max_size=16),
    st.dictionaries(st.text(max_size=9), st.builds(Done, counts, counts, counts, counts, counts)),
    st.none() | intents,
)
def test_the_state_survives_its_file(identity: bytes, done: dict[str, Done], intent: Intent | None) -> None:
    state = SinkState(identity, done, intent)
    assert parse_state(format_state(state), "sink") == state


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"value": pa.int64()}, "cannot be int64"),
        ({"key": pa.binary()}, "no column value"),
        ({"value": pa.binary(), "offset": pa.int64()}, "rows have value, offset"),
        ({"value": pa.binary(), "timestamp": pa.int64()}, "cannot be int64"),
    ],
)
def test_rows_that_are_no_records_are_refused(fields: dict[str, pa.DataType], problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        check_writable(pa.schema(list(fields.items())))


def test_a_row_that_no_journal_takes_is_refused_before_anything_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = pa.record_batch([pa.array([None], pa.string()), pa.array([b"k"])], schema=SCHEMA)
    with pytest.raises(InvalidInput, match="needs a value"):
        staged(tmp_path / "j", missing)
    monkeypatch.setattr(records, "_RECORD_BYTES_MAX", 3)
    with pytest.raises(RecordTooLarge):
        staged(tmp_path / "j", rows("four"))
    late = pa.schema([("value", pa.binary()), ("timestamp", pa.timestamp("us", tz="UTC"))])
    batch = pa.record_batch([pa.array([b"a"]), pa.array([2**62], late.field(1).type)], schema=late)
    with pytest.raises(InvalidInput, match="1677 to 2262"):
        stage(tmp_path, [batch], staged_schema(late), records_of)
