"""Small things of the face: batches iterate, objects say what they are, and text is refused by both checkers."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from strandline.errors import InvalidInput, WrongType
from strandline.files import OsDisk
from strandline.groups import Group
from strandline.journal import WRITTEN, Journal, JournalReader, JournalSet
from strandline.queue import Queue

HEAD = """
import pyarrow as pa
from strandline.journal import Journal
from strandline.queue import Queue
journal = Journal.open("j")
queue = Queue.open("q")
"""


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


def test_mypy_refuses_text_where_bytes_belong(tmp_path: Path) -> None:
    wrong = [
        'journal.append(["text"])',
        'journal.append([b"a"], keys=["text"])',
        'journal.append_soon(["text"])',
        'journal.append("text")',
        'queue.put_many(["text"])',
        'queue.put("text")',
    ]
    right = ['journal.append([b"a"], keys=[b"k"])', 'journal.append(pa.array(["a"]))', 'queue.put(b"a")']
    (tmp_path / "wrong.py").write_text("\n".join([HEAD, *wrong, *right]))
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(tmp_path / "wrong.py")]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    first = len(HEAD.splitlines()) + 2
    refused = [int(line.split(":")[1]) for line in said.splitlines() if "[arg-type]" in line or "[list-item]" in line]
    assert sorted(set(refused)) == list(range(first, first + len(wrong))), said
