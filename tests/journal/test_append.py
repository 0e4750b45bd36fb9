"""Appending: receipts, columns, durability per call, the future and the asyncio face, and what is refused."""

import array
import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import Closed, InvalidInput, RecordTooLarge
from strandline.files import OsDisk
from strandline.journal import SYNCED, WRITTEN, Appended, Durability, Journal, JournalConfig, Record
from strandline.journal.config import GiB, KiB
from strandline.sim import SimDisk
from tests.journal.helpers import (
    SMALL,
    WAIT_S,
    LaterExecutor,
    Tally,
    WatchedDisk,
    in_threads,
    numbered,
    open_sim,
    records_of,
    values_of,
)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal.open(tmp_path / "journal") as journal:
        yield journal


class TestReceipts:
    def test_offsets_begin_at_zero_and_go_on_without_a_gap(self, journal: Journal) -> None:
        assert journal.append([b"a"]) == Appended(0, 1)
        assert journal.append([b"b", b"c"]) == Appended(1, 2)
        assert journal.append([b"d"]).next_offset == 4
        assert (journal.first_offset, journal.next_offset, journal.durable_offset) == (0, 4, 4)

    def test_an_empty_journal_has_nothing_and_says_so_with_zero(self, journal: Journal) -> None:
        assert (journal.first_offset, journal.next_offset, journal.durable_offset) == (0, 0, 0)
        assert values_of(journal) == []

    def test_nothing_is_appended_by_an_empty_append(self, journal: Journal) -> None:
        journal.append([b"a"])
        assert journal.append([]) == Appended(1, 0)
        assert journal.append_soon([]).result(0) == Appended(1, 0)
        assert asyncio.run(journal.append_async([])) == Appended(1, 0)
        assert journal.append(pa.array([], pa.binary()), keys=[], timestamps=[]) == Appended(1, 0)
        assert values_of(journal) == [b"a"]

    def test_an_identity_is_its_own_and_stays(self, tmp_path: Path) -> None:
        with Journal.open(tmp_path / "a") as one, Journal.open(tmp_path / "b") as two:
            assert len(one.identity) == 16
            assert one.identity != two.identity
            identity = one.identity
        with Journal.open(tmp_path / "a") as again:
            assert again.identity == identity


class TestColumns:
    def test_every_column_comes_back(self, journal: Journal) -> None:
        journal.append([b"v0", b""], keys=[b"", b"k1"], headers=[b"h0", b"h1"], timestamps=[-5, 2**63 - 1])
        assert records_of(journal) == [Record(0, b"v0", b"", b"h0", -5), Record(1, b"", b"k1", b"h1", 2**63 - 1)]

    def test_a_column_that_was_not_given_is_none_and_an_empty_one_is_not(self, journal: Journal) -> None:
        journal.append([b"a"])
        journal.append([b"b"], keys=[b""])
        journal.append([b"c"], headers=[b""])
        journal.append([b"d"], timestamps=[0])
        assert [record[2:] for record in records_of(journal)] == [
            (None, None, None),
            (b"", None, None),
            (None, b"", None),
            (None, None, 0),
        ]

    @given(
        st.lists(
            st.tuples(
                st.lists(st.tuples(st.binary(max_size=40), st.binary(max_size=9), st.integers(-9, 9)), min_size=1),
                st.integers(0, 7),
            ),
            max_size=6,
        )
    )
    def test_whatever_is_appended_is_read(self, appends: list[tuple[list[tuple[bytes, bytes, int]], int]]) -> None:
        with open_sim(SimDisk()) as journal:
            expected: list[tuple[bytes, bytes | None, bytes | None, int | None]] = []
            for rows, shape in appends:
                values, extra, times = map(list, zip(*rows, strict=True))
                journal.append(
                    values,
                    keys=extra if shape & 1 else None,
                    headers=extra[::-1] if shape & 2 else None,
                    timestamps=times if shape & 4 else None,
                )
                for i in range(len(rows)):
                    key = extra[i] if shape & 1 else None
                    headers = extra[::-1][i] if shape & 2 else None
                    expected.append((values[i], key, headers, times[i] if shape & 4 else None))
            assert [tuple(record[1:]) for record in records_of(journal)] == expected
            for offset, content in enumerate(expected):
                assert tuple(journal.fetch(offset)) == (offset, *content)

    def test_appends_with_different_columns_share_one_commit(self) -> None:
        tally = Tally()
        later = LaterExecutor()
        with Journal.open("/sim/j", disk=WatchedDisk(SimDisk(), tally), executor=later) as journal:
            tally.clear()
            futures = [
                journal.append_soon([b"a"]),
                journal.append_soon([b"b", b"c"]),
                journal.append_soon([b"d"], keys=[b"k"]),
                journal.append_soon([b"e"], timestamps=[5], durability=WRITTEN),
                journal.append_soon([b"f", b"g"], keys=[b"l", b"m"], headers=[b"h", b"i"], timestamps=[1, 2]),
                journal.append_soon([b"h"]),
            ]
            later.run_all()
            assert [future.result(0) for future in futures] == [
                Appended(0, 1),
                Appended(1, 2),
                Appended(3, 1),
                Appended(4, 1),
                Appended(5, 2),
                Appended(7, 1),
            ]
            writes = [name for operation, name in tally.log if operation == "pwritev" and name.endswith(".journal")]
            assert len(writes) == 1
            assert tally.times["sync"] == 1
            assert records_of(journal) == [
                Record(0, b"a", None, None, None),
                Record(1, b"b", None, None, None),
                Record(2, b"c", None, None, None),
                Record(3, b"d", b"k", None, None),
                Record(4, b"e", None, None, 5),
                Record(5, b"f", b"l", b"h", 1),
                Record(6, b"g", b"m", b"i", 2),
                Record(7, b"h", None, None, None),
            ]

    def test_appends_with_the_same_columns_share_one_batch(self) -> None:
        later = LaterExecutor()
        with Journal.open("/sim/j", disk=SimDisk(), executor=later) as journal:
            futures = [journal.append_soon([b"%d" % n], keys=[b""], timestamps=[n]) for n in range(50)]
            later.run_all()
            assert [future.result(0).base_offset for future in futures] == list(range(50))
            batches = list(journal.scan(0))
            assert [len(batch) for batch in batches] == [50]
            assert batches[0].values() == [b"%d" % n for n in range(50)]

    def test_what_the_caller_changes_afterwards_is_not_what_is_written(self) -> None:
        later = LaterExecutor()
        with Journal.open("/sim/j", disk=SimDisk(), executor=later) as journal:
            value = bytearray(b"before")
            times = np.array([1, 2], np.int64)
            journal.append_soon([value, b"x"], timestamps=times)
            value[:] = b"after!"
            times[:] = 9
            later.run_all()
            assert records_of(journal) == [Record(0, b"before", None, None, 1), Record(1, b"x", None, None, 2)]


class TestArrow:
    @pytest.mark.parametrize("kind", [pa.binary(), pa.string()], ids=str)
    def test_an_arrow_array_is_a_column(self, journal: Journal, kind: pa.DataType) -> None:
        journal.append(pa.array(["a", "", "ccc"], kind), keys=pa.array(["x", "y", "z"], kind))
        assert values_of(journal) == [b"a", b"", b"ccc"]
        assert [record.key for record in records_of(journal)] == [b"x", b"y", b"z"]

    def test_a_slice_with_an_offset_is_only_its_own_part(self, journal: Journal) -> None:
        array = pa.array([b"no", b"one", b"", b"three", b"no"])
        journal.append(array.slice(1, 3), keys=array.slice(2, 3))
        journal.append(array.slice(4))
        journal.append(array.slice(5))
        journal.append(array.slice(2, 0))
        assert [(record.value, record.key) for record in records_of(journal)] == [
            (b"one", b""),
            (b"", b"three"),
            (b"three", b"no"),
            (b"no", None),
        ]

    def test_only_empty_values_have_no_data(self, journal: Journal) -> None:
        journal.append(pa.array([b"", b""]))
        assert values_of(journal) == [b"", b""]

    def test_an_empty_array_without_buffers_is_empty(self, journal: Journal) -> None:
        empty = pa.BinaryArray.from_buffers(pa.binary(), 0, [None, None, pa.py_buffer(b"")])
        assert journal.append(empty) == Appended(0, 0)

    def test_a_bitmap_without_nulls_is_fine_and_a_null_is_not(self, journal: Journal) -> None:
        array = pa.array([b"a", None, b"c"])
        with pytest.raises(InvalidInput, match="nulls"):
            journal.append(array)
        with pytest.raises(InvalidInput, match="nulls"):
            journal.append([b"", b"", b""], keys=array)
        journal.append(array.slice(2))
        assert values_of(journal) == [b"c"]

    @pytest.mark.parametrize(
        "array",
        [
            pa.array([1, 2]),
            pa.array([b"a"], pa.large_binary()),
            pa.array([b"a"], pa.binary_view()),
            pa.array([b"aa"], pa.binary(2)),
            pa.array(["a"]).dictionary_encode(),
            pa.chunked_array([[b"a"]]),
        ],
        ids=lambda array: str(array.type),
    )
    def test_other_arrays_are_refused(self, journal: Journal, array: pa.Array) -> None:
        with pytest.raises(InvalidInput):
            journal.append(array)
        assert journal.next_offset == 0

    @pytest.mark.parametrize("offsets", [[0, 3, 1, 4], [0, 9, 2, 4], [0, -1, 2, 4]])
    def test_an_array_that_is_not_valid_is_refused(self, journal: Journal, offsets: list[int]) -> None:
        buffers = [None, pa.py_buffer(np.array(offsets, np.int32)), pa.py_buffer(b"abcd")]
        with pytest.raises(InvalidInput):
            journal.append(pa.BinaryArray.from_buffers(pa.binary(), 3, buffers))
        assert journal.append([b"fine"]).base_offset == 0

    def test_what_was_read_can_be_appended(self, journal: Journal, tmp_path: Path) -> None:
        journal.append(numbered(0, 100), keys=numbered(0, 100), timestamps=range(100))
        with Journal.open(tmp_path / "copy") as copy:
            for batch in journal.scan(0):
                table = batch.clip(10, 90).to_arrow()
                copy.append(table["value"], keys=table["key"], timestamps=table["timestamp"].to_numpy())
            assert [record[1:] for record in records_of(copy)] == [record[1:] for record in records_of(journal)][10:90]


class TestRefused:
    @pytest.mark.parametrize(
        "values",
        [b"text", "text", bytearray(b"text"), ["text"], [1], [None], [b"a", "b"], 5, None, ...],
        ids=repr,
    )
    def test_what_is_not_a_sequence_of_bytes(self, journal: Journal, values: object) -> None:
        with pytest.raises(InvalidInput):
            journal.append(values)  # type: ignore[arg-type]
        assert journal.next_offset == 0

    def test_a_generator_because_it_has_no_length(self, journal: Journal) -> None:
        with pytest.raises(InvalidInput, match="sequence"):
            journal.append(value for value in [b"a"])  # type: ignore[arg-type]

    def test_views_of_wider_items(self, journal: Journal) -> None:
        with pytest.raises(InvalidInput):
            journal.append([memoryview(array.array("i", [1, 2]))])
        journal.append([memoryview(b"ab")[1:]])
        assert values_of(journal) == [b"b"]

    @pytest.mark.parametrize("column", ["keys", "headers", "timestamps"])
    def test_columns_of_another_length(self, journal: Journal, column: str) -> None:
        with pytest.raises(InvalidInput):
            journal.append([b"a", b"b"], **{column: [1] if column == "timestamps" else [b"x"]})  # type: ignore[arg-type]
        assert journal.next_offset == 0

    @pytest.mark.parametrize(
        "times",
        [
            [1.5],
            ["1"],
            [None],
            [2**63],
            [-(2**63) - 1],
            [[1]],
            5,
            np.array([2**63], np.uint64),
            np.array([1.0]),
            np.array(["2020-01-01"], "M8[s]"),
        ],
        ids=repr,
    )
    def test_timestamps_that_are_not_whole_nanoseconds(self, journal: Journal, times: object) -> None:
        with pytest.raises(InvalidInput, match="timestamps"):
            journal.append([b"a"], timestamps=times)  # type: ignore[arg-type]

    @pytest.mark.parametrize("kind", [np.int8, np.uint32, np.uint64, ">i8", np.int64])
    def test_but_whole_numbers_of_any_width_are_fine(self, journal: Journal, kind: str) -> None:
        journal.append([b"a", b"b"], timestamps=np.array([[1, 0], [2, 0]], kind)[:, 0])
        assert [record.timestamp_ns for record in records_of(journal)] == [1, 2]

    @pytest.mark.parametrize("durability", ["synced", None, 1, True])
    def test_a_durability_that_is_none(self, journal: Journal, durability: Durability) -> None:
        with pytest.raises(InvalidInput, match="durability"):
            journal.append([b"a"], durability=durability)
        with pytest.raises(InvalidInput, match="durability"):
            journal.append_soon([b"a"], durability=durability)
        assert journal.append([b"a"]).base_offset == 0

    def test_too_large_a_record_or_append(self, tmp_path: Path) -> None:
        config = JournalConfig(record_bytes_max=2 * KiB, append_bytes_max=5 * KiB)
        with Journal.open(tmp_path / "journal", config) as journal:
            large = bytes(2 * KiB + 1)
            for arguments in (
                {"values": [b"", large]},
                {"values": pa.array([b"", large])},
                {"values": [b"a"], "keys": [large]},
                {"values": [b"a"], "headers": [large]},
            ):
                with pytest.raises(RecordTooLarge, match=r"record of 2,049 bytes.*2,048") as caught:
                    journal.append(**arguments)
                assert (caught.value.size, caught.value.limit) == (2049, 2048)
                assert caught.value.hint
            for arguments in (
                {"values": [large[1:]] * 3},
                {"values": pa.array([large[1:]] * 3)},
                {"values": [large[1:]], "keys": [large[1:]], "headers": [large[1:]]},
                {"values": [large[1:]] * 2, "timestamps": [0] * 2, "keys": [bytes(1000)] * 2},
            ):
                with pytest.raises(RecordTooLarge, match="append of"):
                    journal.append(**arguments)
            assert journal.append([large[1:]] * 2).base_offset == 0
            assert values_of(journal) == [large[1:]] * 2

    def test_a_closed_journal(self, tmp_path: Path) -> None:
        journal = Journal.open(tmp_path / "journal")
        journal.close()
        with pytest.raises(Closed):
            journal.append([b"a"])
        with pytest.raises(Closed):
            journal.append([])
        with pytest.raises(Closed):
            journal.append_soon([b"a"])
        with pytest.raises(Closed):
            asyncio.run(journal.append_async([b"a"]))
        with pytest.raises(Closed):
            journal.sync()
        with pytest.raises(Closed):
            journal.remove_below(0)
        with pytest.raises(Closed):
            journal.remove_old()
        with pytest.raises(Closed):
            journal.fetch(0)
        with pytest.raises(Closed):
            journal.scan(0)
        with pytest.raises(Closed):
            journal.follow(0)

    @pytest.mark.parametrize(
        "settings",
        [
            {"segment_bytes_max": 1023},
            {"record_bytes_max": 0},
            {"append_bytes_max": GiB + 1},
            {"queue_bytes_max": 1},
            {"reserve_bytes_max": -1},
            {"segment_age_max_s": -1.0},
            {"retain_bytes": -1},
            {"retain_age_s": -0.5},
        ],
        ids=str,
    )
    def test_a_configuration_that_cannot_work(self, settings: dict[str, Any]) -> None:
        with pytest.raises(InvalidInput, match=next(iter(settings))):
            JournalConfig(**settings)


class TestDurability:
    def test_synced_is_the_default_and_written_does_not_sync(self) -> None:
        tally = Tally()
        with open_sim(WatchedDisk(SimDisk(), tally)) as journal:
            tally.clear()
            journal.append([b"a"])
            assert tally.times["sync"] == 1
            journal.append([b"b"], durability=WRITTEN)
            assert tally.times["sync"] == 1
            assert (journal.durable_offset, journal.next_offset) == (1, 2)
            journal.append([b"c"], durability=SYNCED)
            assert tally.times["sync"] == 2
            assert (journal.durable_offset, journal.next_offset) == (3, 3)

    def test_sync_makes_everything_durable_and_costs_nothing_when_it_is(self) -> None:
        tally = Tally()
        with open_sim(WatchedDisk(SimDisk(), tally)) as journal:
            journal.append([b"a", b"b"], durability=WRITTEN)
            assert journal.durable_offset == 0
            assert journal.sync() == 2
            assert journal.durable_offset == 2
            tally.clear()
            assert journal.sync() == 2
            assert tally.times["sync"] == 0

    def test_written_is_settled_without_waiting_for_the_sync_of_its_neighbour(self) -> None:
        later = LaterExecutor()
        order: list[str] = []

        def watch(operation: str, path: Path, size: int) -> None:  # noqa: ARG001 - what a watch is called with
            if operation == "sync" and path.name.endswith(".journal"):
                order.append("sync")

        with Journal.open("/sim/j", disk=WatchedDisk(SimDisk(), watch), executor=later) as journal:
            journal.append_soon([b"a"], durability=WRITTEN).add_done_callback(lambda _: order.append("written"))
            journal.append_soon([b"b"]).add_done_callback(lambda _: order.append("synced"))
            order.clear()
            later.run_all()
        assert order[:3] == ["written", "sync", "synced"]

    @pytest.mark.parametrize("durability", list(Durability))
    def test_nobody_is_told_before_the_bytes_are_as_durable_as_asked(self, durability: Durability) -> None:
        """After each acknowledgement, look at what the disk was asked to do until then."""
        tally = Tally()
        with open_sim(WatchedDisk(SimDisk(), tally), SMALL) as journal:
            for number in range(12):
                tally.clear()
                told: list[list[tuple[str, str]]] = []
                future = journal.append_soon([bytes(300)], durability=durability)
                future.add_done_callback(lambda _, told=told: told.append(list(tally.log)))  # type: ignore[misc]
                operations = [operation for operation, name in told[0] if name.endswith(".journal")]
                assert "pwritev" in operations
                if durability is SYNCED:
                    assert "sync" in operations[operations.index("pwritev") :]
                    if "create" in operations:
                        assert "sync_folder" in [operation for operation, _ in told[0]]
                assert journal.next_offset == number + 1


class TestFaces:
    def test_append_soon_gives_a_future(self, journal: Journal) -> None:
        futures = [journal.append_soon([b"%d" % n]) for n in range(100)]
        assert [future.result(WAIT_S).base_offset for future in futures] == list(range(100))
        assert len(values_of(journal)) == 100

    def test_append_async_does_not_block_the_loop(self, journal: Journal) -> None:
        async def main() -> list[Appended]:
            return await asyncio.gather(*(journal.append_async([b"%d" % n]) for n in range(100)))

        receipts = asyncio.run(main())
        assert [receipt.base_offset for receipt in receipts] == list(range(100))
        assert values_of(journal) == [b"%d" % n for n in range(100)]

    def test_append_async_waits_off_the_loop_when_the_queue_is_full(self, tmp_path: Path) -> None:
        go_on = threading.Event()

        def watch(operation: str, path: Path, size: int) -> None:  # noqa: ARG001 - what a watch is called with
            if operation == "pwritev" and path.name.endswith(".journal"):
                go_on.wait(WAIT_S)

        async def main(journal: Journal) -> list[Appended]:
            go_on.clear()
            tasks = [asyncio.create_task(journal.append_async([bytes(700)])) for _ in range(20)]
            for _ in range(20):
                await asyncio.sleep(0.001)  # the loop still turns
            assert not any(task.done() for task in tasks)
            go_on.set()
            return await asyncio.gather(*tasks)

        go_on.set()
        config = JournalConfig(queue_bytes_max=KiB)
        with Journal.open(tmp_path / "journal", config, disk=WatchedDisk(OsDisk(), watch)) as journal:
            receipts = asyncio.run(main(journal))
            assert sorted(receipt.base_offset for receipt in receipts) == list(range(20))

    def test_a_cancelled_task_leaves_the_journal_in_order(self, journal: Journal) -> None:
        async def main() -> None:
            task = asyncio.create_task(journal.append_async([b"perhaps"]))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await journal.append_async([b"surely"])

        asyncio.run(main())
        assert values_of(journal) in ([b"perhaps", b"surely"], [b"surely"])

    def test_refusals_come_at_once_from_every_face(self, journal: Journal) -> None:
        with pytest.raises(InvalidInput):
            journal.append_soon(["text"])  # type: ignore[list-item]
        with pytest.raises(InvalidInput):
            asyncio.run(journal.append_async(["text"]))  # type: ignore[list-item]

    def test_many_threads_get_offsets_that_are_theirs_alone(self, journal: Journal) -> None:
        def produce(name: int) -> list[tuple[int, bytes]]:
            sent = []
            for number in range(100):
                value = f"{name}/{number}".encode()
                durability = WRITTEN if number % 2 else SYNCED
                sent.append((journal.append([value], durability=durability).base_offset, value))
            return sent

        outcomes = in_threads([lambda n=n: produce(n) for n in range(8)])  # type: ignore[misc]
        journal.sync()
        sent = sorted(pair for outcome in outcomes if isinstance(outcome, list) for pair in outcome)
        assert sent == [(record.offset, record.value) for record in records_of(journal)]
        assert len(sent) == 800

    def test_a_lone_caller_uses_no_thread(self, tmp_path: Path) -> None:
        with ThreadPoolExecutor(1) as pool, Journal.open(tmp_path / "journal", executor=pool) as journal:
            before = threading.active_count()
            for number in range(20):
                journal.append([b"%d" % number])
            assert threading.active_count() == before
            assert not pool._threads  # noqa: SLF001 - the only place that tells
