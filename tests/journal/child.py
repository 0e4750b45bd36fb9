"""A writer in a process of its own, told what to do line by line; it answers each line when it is done.

    append <count> <size> <synced|written>    append one batch; answers "<base> <count>"
    sync                                      answers the durable offset
    remove <offset>                           answers the first offset
    hammer <records> <batch> <size>           append many batches of both kinds; answers after each, and "done"
    reopen                                    close and open again
    close

An error is answered by its type. The value of a record can be told from its offset, so whoever reads can check it.
"""

import json
import os
import sys
from collections.abc import Iterator

from strandline.errors import StrandlineError
from strandline.journal import SYNCED, WRITTEN, Journal, JournalConfig


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


def main() -> None:
    """Open the journal named by the first argument, configured by the second, and do as told."""
    folder, settings = sys.argv[1], json.loads(sys.argv[2])
    config = JournalConfig(**settings)
    journal = Journal.open(folder, config)
    answer("open", journal.first_offset, journal.next_offset)
    for line in sys.stdin:
        words = line.split()
        try:
            match words:
                case ["append", count, size, durability]:
                    answer(append(journal, int(count), int(size), durability))
                case ["sync"]:
                    answer(journal.sync())
                case ["remove", offset]:
                    journal.remove_below(int(offset))
                    answer(journal.first_offset)
                case ["hammer", records, batch, size]:
                    for told in hammer(journal, int(records), int(batch), int(size)):
                        answer(told)
                case ["reopen"]:
                    journal.close()
                    journal = Journal.open(folder, config)
                    answer("open", journal.first_offset, journal.next_offset)
                case ["close"]:
                    journal.close()
                    answer("closed")
                case _:
                    raise AssertionError(line)
        except StrandlineError as error:
            answer("error", type(error).__name__, getattr(error, "code", ""), str(error))


if __name__ == "__main__":
    main()
