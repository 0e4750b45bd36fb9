"""Small things of the face: batches iterate, objects say what they are, and text is refused by both checkers."""

import tomllib
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from strandline.errors import InvalidInput, WrongType
from strandline.files import OsDisk
from strandline.groups import Group
from strandline.journal import WRITTEN, Journal, JournalReader, JournalSet
from strandline.queue import Queue

ROOT = Path(__file__).resolve().parents[2]


def test_a_batch_iterates_over_its_records(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "j") as journal:
        journal.append([b"a", b"b"], keys=[b"k", b"l"])
        (batch,) = journal.scan(0)
        assert list(batch) == list(batch.records())
        assert [(record.offset, record.value, record.key) for record in batch] == [(0, b"a", b"k"), (1, b"b", b"l")]


def test_objects_say_what_they_are(tmp_path: Path) -> None:
    folder = tmp_path / "j"
    with Journal.open(folder) as journal:
        journal.append([b"a", b"b"])
        journal.append([b"c"], durability=WRITTEN)
        assert repr(journal) == f"Journal('{folder}', [0, 3), durable=2)"
        journal.sync()
        with JournalReader.open(folder) as reader:
            assert repr(reader) == f"JournalReader('{folder}', [0, 3), SYNCED)"
        assert repr(reader) == f"JournalReader('{folder}', closed)"
        assert [repr(batch) for batch in journal.scan(0)] == ["Batch([0, 2))", "Batch([2, 3))"]
    assert repr(journal) == f"Journal('{folder}', [0, 3), closed)"
    with JournalSet.open(tmp_path / "set") as journals:
        journals.journal("orders/0")
        assert repr(journals) == f"JournalSet('{tmp_path / 'set'}', open=1)"
    assert repr(journals) == f"JournalSet('{tmp_path / 'set'}', closed)"


def test_queues_and_groups_say_what_they_are(tmp_path: Path) -> None:
    folder = tmp_path / "q"
    with Queue.open(folder) as queue:
        queue.put_many([b"a", b"b"])
        job = next(queue.take("workers"))
        assert repr(job) == "Job('workers', offset=0, deliveries=1)"
        assert repr(queue) == f"Queue(JournalStorage('{folder}', messages=[0, 2), groups=1))"
    assert repr(queue) == f"Queue(JournalStorage('{folder}', closed), closed)"
    assert repr(Queue.in_memory()) == "Queue(MemoryStorage(messages=0, groups=0))"
    with Group.open(OsDisk(), tmp_path, "workers") as group:
        group.ack_below(3)
        group.mark_inflight(5, 10**18)
        assert repr(group) == "Group('workers', acked_until=3, in_flight=1, waiting=0)"


@pytest.mark.parametrize("values", [["text"], ["text", b"bytes"], [b"bytes", None], [7], "text", b"bytes", 7])
def test_what_is_not_bytes_is_refused_as_a_wrong_type(tmp_path: Path, values: object) -> None:
    with Journal.open(tmp_path / "j") as journal, Queue.open(tmp_path / "q") as queue, Queue.in_memory() as forgetful:
        for put in (journal.append, queue.put_many, forgetful.put_many):
            with pytest.raises(WrongType) as caught:
                put(values)  # type: ignore[arg-type]
            assert isinstance(caught.value, TypeError)
            assert isinstance(caught.value, InvalidInput)
            assert caught.value.hint
        assert journal.next_offset == 0
        assert journal.append(pa.array([b"a"])).count == 1


def test_text_where_bytes_belong_is_refused_by_both_checkers(tmp_path: Path) -> None:
    """Mypy refuses these lines as well: with `--strict` it reports an ignored error that is none."""
    with Journal.open(tmp_path / "j") as journal, Queue.open(tmp_path / "q") as queue:
        refused: list[Callable[[], object]] = [
            lambda: journal.append(["text"]),  # type: ignore[list-item]
            lambda: journal.append([b"a"], keys=["text"]),  # type: ignore[list-item]
            lambda: journal.append_soon(["text"]),  # type: ignore[list-item]
            lambda: journal.append("text"),  # type: ignore[arg-type]
            lambda: queue.put_many(["text"]),  # type: ignore[list-item]
            lambda: queue.put("text"),  # type: ignore[arg-type]
        ]
        for call in refused:
            with pytest.raises(WrongType):
                call()
        journal.append([b"a"], keys=[b"k"])
        journal.append(pa.array(["a"]))
        queue.put(b"a")


def test_make_check_reports_an_ignored_error_that_is_none() -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
    assert options["strict"]
    assert options.get("warn_unused_ignores", True)
    assert "tests" in options["files"]
