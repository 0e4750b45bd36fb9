"""JetStream for ordinary NATS clients, in one process.

**Promise.** A publish that was acknowledged is there after SIGKILL and power loss: once, in order, under its sequence.
Duplicate windows, expected sequences, deletes, purges and configurations hold across a crash likewise; of two writers
who expect the same sequence one wins. Answers, codes and texts are those of nats-server 2.15.1, so clients need not
know.

**Parts.** `api` is what is said: every request, answer and error code as a frozen type, checks and defaults in the
server's order, JSON as Go writes it. `streams` is what is kept: one stream, its messages in a journal, its index in
memory. Both are pure but for `streams.stream`, which does the I/O.

**A stream on a journal.** A message is one journal record: its subject is the key, its headers and payload are the
other columns. A few control records say what cannot be seen from the messages: which were removed by hand, which were
moved, which configuration holds. What limits, age and times to live let go of needs no record: it follows from the
log. So publishing is one append of columns and one fsync for everything that came in together, and a restart replays
the log through the code that made it (`docs/formats/broker-stream.md`).

**Invariants.**

- The state of a stream is a function of its log (and of the time, for what goes with time). The index file is only a
  shortcut.
- Sequences are given out once, whatever was deleted, purged or compacted.
- Counts are exact: messages, bytes, by subject, and pending for any filter.

**Trade-offs.**

- The index of all live messages is in memory, 41 bytes for each, and the subjects once. A stream of a hundred million
  messages wants four gigabytes.
- Dead rows are squeezed out when they are the larger part, in one go: about 15 ms for each million rows.
- The log is compacted by moving live messages to its end; each message is written up to twice over its life for each
  doubling of the log.
- Message schedules are refused. Compression is accepted and ignored: the journal is not compressed.
- `no_erase` makes no difference: deleted bytes stay in the journal until their segment goes.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

if _TYPE_CHECKING:
    from strandline.broker.api.codes import ApiError
    from strandline.broker.api.config import StreamConfig
    from strandline.broker.streams.stream import Stream

__all__ = ["ApiError", "Stream", "StreamConfig"]


def __getattr__(name: str) -> object:
    """Import what is offered when it is first asked for: a command that only reads settings starts at once."""
    from importlib import import_module  # noqa: PLC0415 - that is the point

    homes = {"ApiError": "api.codes", "Stream": "streams.stream", "StreamConfig": "api.config"}
    if name not in homes:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{homes[name]}"), name)
