"""The commit over a log in memory that dies at every one of its steps: each row once, whatever the log recognises."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pytest

from strandline.spark.errors import SinkUnsure
from strandline.spark.sink import (
    Commit,
    Committed,
    PendingCommit,
    Progress,
    StagedFile,
    commit_rows,
    drop_staged,
    read_staged,
    stage,
)

SCHEMA = pa.schema([("value", pa.binary())])


class Killed(BaseException):
    """Stands for the end of the process."""


class MemoryLog:
    """Rows with the commit and the number of each; every step may be the last of the process, before or after it."""

    def __init__(self, *, forgets: bool) -> None:
        self.rows: list[tuple[Commit, int, bytes]] = []
        self.done: dict[str, Committed] = {}
        self.intent: PendingCommit | None = None
        self.steps_left = -1
        self._forgets = forgets

    def pending(self) -> PendingCommit | None:
        return self.intent

    def last(self, writer: str) -> Committed | None:
        return self.done.get(writer)

    def begin(self, commit: PendingCommit) -> None:
        with self._step():
            self.intent = commit

    def resume(self, commit: PendingCommit, replay: Sequence[Path] | None) -> Progress | None:
        files = commit.files if commit.missing_file() is None else replay
        there = {number for owner, number, _ in self.rows if owner == commit.commit}
        if files is None:
            raise self.unsure("the staged rows are gone", "")
        return None if self._forgets and not there else Progress(files, there)

    def append(self, files: Sequence[Path], there: Collection[int]) -> None:
        assert self.intent is not None
        values = [value for batch in read_staged(files) for value in batch["value"].to_pylist()]
        for number, value in enumerate(values):
            if number not in there:
                with self._step():
                    self.rows.append((self.intent.commit, number, value))

    def finish(self) -> None:
        assert self.intent is not None
        with self._step():
            commit, rows, size, _ = self.intent
            self.done[commit.writer] = Committed(commit.number, rows, size)
            self.intent = None

    def forget(self) -> None:
        with self._step():
            self.intent = None

    def unsure(self, problem: str, hint: str) -> SinkUnsure:
        return SinkUnsure("memory", problem, hint)

    @contextmanager
    def _step(self) -> Iterator[None]:
        self.steps_left -= 1
        if self.steps_left == 0:
            raise Killed
        yield
        self.steps_left -= 1
        if self.steps_left == 0:
            raise Killed


class MemorySink:
    """The sink of a log in memory."""

    def __init__(self, log: MemoryLog, folder: Path) -> None:
        self.log = log
        self.folder = folder

    def check(self, schema: pa.Schema) -> None:
        pass

    def staged_schema(self, schema: pa.Schema) -> pa.Schema:
        return schema

    def convert(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        return batch.cast(schema)

    def staging_folder(self, name: str) -> Path:
        return self.folder / name

    def unnamed_writer(self, name: str) -> str:
        return f"write/{name}"

    @contextmanager
    def open(self, commit: Commit) -> Iterator[MemoryLog]:  # noqa: ARG002
        yield self.log

    def files_in_use(self, commit: Commit) -> Sequence[Path]:  # noqa: ARG002
        return () if self.log.intent is None else self.log.intent.files


def staged(sink: MemorySink, *values: bytes) -> list[StagedFile]:
    """Stage each value as a task of its own would."""
    batches = [pa.RecordBatch.from_pydict({"value": [value]}, schema=SCHEMA) for value in values]
    return [stage(sink.folder / "staged", [batch], SCHEMA, sink.convert) for batch in batches]


@pytest.fixture(params=[False, True], ids=["finishes", "forgets"])
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> MemorySink:
    return MemorySink(MemoryLog(forgets=request.param), tmp_path)


@pytest.mark.parametrize("first", range(1, 11))
@pytest.mark.parametrize("second", range(0, 11, 3))
def test_a_commit_that_dies_at_any_step_and_again_while_it_is_settled_is_there_once(
    sink: MemorySink, first: int, second: int
) -> None:
    rows = [b"a", b"b", b"c"]
    for steps in (first, second):
        sink.log.steps_left = steps
        with suppress(Killed):
            commit_rows(sink, Commit("query/a", 0), staged(sink, *rows))
    sink.log.steps_left = -1
    commit_rows(sink, Commit("query/a", 0), staged(sink, *rows))
    commit_rows(sink, Commit("query/a", 1), staged(sink, b"d"))
    assert [value for _, _, value in sink.log.rows] == [*rows, b"d"]
    assert sink.log.intent is None


def test_a_replay_is_dropped_and_other_rows_under_its_number_are_refused(sink: MemorySink) -> None:
    for _ in range(2):
        commit_rows(sink, Commit("query/a", 3), staged(sink, b"a", b"b"))
    for number, rows in ((3, [b"a"]), (2, [b"a", b"b"])):
        with pytest.raises(SinkUnsure, match="comes again with number"):
            commit_rows(sink, Commit("query/a", number), staged(sink, *rows))
    commit_rows(sink, Commit("query/b", 0), staged(sink, b"c"))
    assert [value for _, _, value in sink.log.rows] == [b"a", b"b", b"c"]


def test_a_commit_without_rows_stores_nothing(sink: MemorySink) -> None:
    commit_rows(sink, Commit("query/a", 0), [])
    assert (sink.log.rows, sink.log.done, sink.log.intent) == ([], {}, None)


def test_staged_rows_of_a_commit_that_was_cut_short_are_kept_and_others_are_removed(sink: MemorySink) -> None:
    files = staged(sink, b"a", b"b")
    sink.log.steps_left = 3
    with pytest.raises(Killed):
        commit_rows(sink, Commit("query/a", 0), files)
    other = staged(sink, b"c")
    drop_staged(sink, Commit("query/a", 0), [one.path for one in (*files, *other)])
    assert [one.path.exists() for one in (*files, *other)] == [True, True, False]
