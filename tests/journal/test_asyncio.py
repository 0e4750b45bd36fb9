"""Reading a journal from asyncio: the same batches, an event loop that never waits, and no thread left behind."""

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from strandline.errors import Closed, InvalidInput, OffsetBeyondEnd
from strandline.journal import WRITTEN, Journal, JournalConfig, JournalReader
from tests.journal.helpers import WAIT_S, numbered

SMALL = JournalConfig(segment_bytes_max=4096)


def wait_until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.01)


def threads_named(part: str) -> list[str]:
    return [thread.name for thread in threading.enumerate() if part in thread.name]


def test_scan_yields_the_same_batches(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "j", SMALL) as journal:
        for number in range(0, 100, 5):
            journal.append(numbered(number, number + 5, 100))
        with JournalReader.open(tmp_path / "j") as reader:

            async def read(
                source: Journal | JournalReader, start: int, stop: int | None = None, max_records: int | None = None
            ) -> list[bytes]:
                batches = source.scan_async(start, stop=stop, max_records=max_records)
                return [record.value async for batch in batches for record in batch]

            for source in (journal, reader):
                assert asyncio.run(read(source, 0)) == numbered(0, 100, 100)
                assert asyncio.run(read(source, 7, stop=23)) == numbered(7, 23, 100)
                assert asyncio.run(read(source, 7, max_records=2)) == numbered(7, 9, 100)
                with pytest.raises(OffsetBeyondEnd):
                    source.scan_async(101)
                with pytest.raises(InvalidInput):
                    source.follow_async(-1)
        with pytest.raises(Closed):
            reader.scan_async(0)
        with pytest.raises(Closed):
            reader.follow_async(0)
    with pytest.raises(Closed):
        journal.follow_async(0)


@pytest.mark.parametrize("beside", [False, True], ids=["the writer", "a reader beside it"])
def test_follow_waits_for_more_while_the_loop_goes_on(tmp_path: Path, beside: bool) -> None:
    async def main(journal: Journal, source: Journal | JournalReader) -> list[bytes]:
        async def produce() -> None:
            for number in range(20):
                await journal.append_async(numbered(number, number + 1))
                await asyncio.sleep(0)

        producing = asyncio.create_task(produce())
        seen: list[bytes] = []
        async for batch in source.follow_async(0):
            seen += batch.values()
            if len(seen) == 20:
                break
        await producing
        return seen

    with Journal.open(tmp_path / "j", SMALL) as journal, JournalReader.open(tmp_path / "j") as reader:
        assert asyncio.run(main(journal, reader if beside else journal)) == numbered(0, 20)
    wait_until(lambda: not threads_named("strandline-follow"))


def test_follow_ends_in_quiet_when_the_journal_is_closed_and_when_it_is_cancelled(tmp_path: Path) -> None:
    async def follow(source: Journal | JournalReader, timeout_s: float | None) -> int:
        return len([batch async for batch in source.follow_async(0, timeout_s=timeout_s)])

    async def main(journal: Journal, reader: JournalReader) -> None:
        assert await follow(journal, 0.01) == 1
        assert await follow(reader, 0.01) == 1
        waiting = asyncio.create_task(follow(reader, None))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        ending = asyncio.create_task(follow(journal, None))
        await asyncio.to_thread(wait_until, lambda: bool(threads_named("strandline-follow")))
        await asyncio.to_thread(journal.close)
        assert await asyncio.wait_for(ending, WAIT_S) == 1

    with Journal.open(tmp_path / "j", SMALL) as journal, JournalReader.open(tmp_path / "j") as reader:
        journal.append([b"a"], durability=WRITTEN)
        journal.sync()
        asyncio.run(main(journal, reader))
    wait_until(lambda: not threads_named("strandline-follow"))
