"""A writer in a process of its own, told what to do line by line; it answers each line when it is done.

    append <count> <size> <synced|written>    append one batch; answers "<base> <count>"
    sync                                      answers the durable offset
    remove <offset>                           answers the first offset
    hammer <records> <batch> <size>           append many batches of both kinds; answers after each, and "done"
    close                                     answers "closed"
    open                                      answers "open <first offset> <next offset>"; done once at the beginning

An error is answered by its type. The value of a record can be told from its offset, so whoever reads can check it.
"""

import ctypes
import itertools
import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import Executor
from multiprocessing.connection import Connection
from typing import Any

from strandline.errors import Closed, StrandlineError
from strandline.gather import InlineExecutor
from strandline.journal import SYNCED, WRITTEN, Journal, JournalConfig

PR_SET_PTRACER = 0x59616D61


def value_of(offset: int, size: int) -> bytes:
    """Return the value that the record at an offset has."""
    return b"%d:" % offset + b"v" * (size * (1 + offset % 3) // 2)


def answer(*words: object) -> None:
    """Write one line at once, so that it is out before anything else happens."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def append(journal: Journal, count: int, size: int, durability: str) -> str:
    """Append one batch of records that tell their offsets; the outcome of a failure is not known here."""
    base = journal.next_offset
    values = [value_of(offset, size) for offset in range(base, base + count)]
    keys = [b"%d" % offset for offset in range(base, base + count)] if base % 2 else None
    receipt = journal.append(values, keys=keys, durability=SYNCED if durability == "synced" else WRITTEN)
    if receipt.base_offset != base:
        raise AssertionError(receipt)
    return f"{receipt.base_offset} {receipt.count} {durability}"


def hammer(journal: Journal, records: int, batch: int, size: int) -> Iterator[str]:
    """Append batches of growing length until there are so many records."""
    number = 0
    while journal.next_offset < records:
        number += 1
        yield append(journal, 1 + number % batch, size, "written" if number % 3 else "synced")
        if number % 7 == 0:
            journal.remove_below(journal.next_offset // 2)
    yield "done"


class Writer:
    """Does as it is told."""

    def __init__(self, folder: str, settings: dict[str, Any], executor: Executor | None = None) -> None:
        self._folder = folder
        self._config = JournalConfig(**settings)
        self._executor = executor
        self._journal: Journal | None = None

    def obey(self, line: str) -> Iterator[str]:
        """Yield the answers to one line."""
        try:
            yield from self._obey(line.split())
        except StrandlineError as error:
            yield f"error {type(error).__name__} {error}"

    def _obey(self, words: list[str]) -> Iterator[str]:
        match words:
            case ["open"]:
                self._journal = Journal.open(self._folder, self._config, executor=self._executor)
                yield f"open {self.journal.first_offset} {self.journal.next_offset}"
            case ["append", count, size, durability]:
                yield append(self.journal, int(count), int(size), durability)
            case ["sync"]:
                yield f"{self.journal.sync()}"
            case ["remove", offset]:
                self.journal.remove_below(int(offset))
                yield f"{self.journal.first_offset}"
            case ["hammer", records, batch, size]:
                yield from hammer(self.journal, int(records), int(batch), int(size))
            case ["close"]:
                self.journal.close()
                yield "closed"
            case _:
                raise AssertionError(words)

    @property
    def journal(self) -> Journal:
        """The journal, which must have been opened."""
        if self._journal is None:
            raise Closed("the child's journal")
        return self._journal


def serve(connection: "Connection[object, object]", folder: str, settings: dict[str, int], *, inline: bool) -> None:
    """Obey the lines of one message; with `inline`, without any thread. The process may be traced by anybody."""
    ctypes.CDLL(None).prctl(PR_SET_PTRACER, ctypes.c_ulong(-1 % 2**64), 0, 0, 0)
    writer = Writer(folder, settings, InlineExecutor() if inline else None)
    connection.send("ready")
    for line in str(connection.recv()).splitlines():
        for said in writer.obey(line):
            connection.send(said)


def main() -> None:
    """Open the journal named by the first argument, configured by the second, and obey the lines of the input."""
    writer = Writer(sys.argv[1], json.loads(sys.argv[2]))
    for line in itertools.chain(["open"], sys.stdin):
        for said in writer.obey(line):
            answer(said)


if __name__ == "__main__":
    main()
