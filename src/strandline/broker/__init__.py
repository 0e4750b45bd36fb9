"""JetStream for ordinary NATS clients, in one process.

**Promise.** A publish that was acknowledged is there after SIGKILL and power loss: once, in order, under its sequence.
Duplicate windows, expected sequences, deletes, purges and configurations hold across a crash likewise; of two writers
who expect the same sequence one wins. Answers, codes and texts are those of nats-server 2.15.1, so clients need not
know.

**Parts.** The API: `api` has every request, response, advisory and error code as a frozen type, checks and defaults in
the server's order, and JSON as Go writes it. Data: `streams` has one stream on a journal; `consumers` read it, on
`groups`; `snapshots` are streams as archives; `mirrors` are streams that copy others. Connections: `core` has them as
state machines, with the subjects that they share; `sockets` has TLS, WebSocket and asyncio's side of a connection.
`jetstream` joins the two for an account, by the two Protocols of `routes`. The server: `commit_cycle` gathers the input
of all sockets, so that one append and one fsync serve it; `server` owns listeners, threads and files, and hands them to
accounts as a `context`; `embedded_server` runs a server for a block. `thread_runner` runs work on other threads,
`work_queue` long work on the loop, `timers` work at a time. `settings` are a server's options, `monitoring` its pages,
`buckets` its buckets without a socket, `logs` its log.

**A stream on a journal.** A message is one journal record: its subject is the key, its headers and payload are the
other columns. A few control records say what cannot be seen from the messages: which were removed by hand, which were
moved, which configuration holds. Removals by limits, age and times to live need no record: they follow from the
log. So publishing is one append of columns and one fsync for everything that came in together, and a restart replays
the log through the code that made it (`docs/formats/broker-stream.md`).

**Invariants.**

- The state of a stream is a function of its log (and of the time, for what goes with time). The index file is only a
  shortcut.
- Sequences are given out once, whatever was deleted, purged or compacted.
- Counts are exact: messages, bytes, by subject, and pending for any filter.
- One thread does everything but fsync and reading remote origins; a commit cycle stores before it answers.
- A stream, consumer or client that fails is cut off alone.

**Trade-offs.**

- The index of all live messages is in memory, 41 bytes for each, and the subjects once. A stream of a hundred million
  messages wants four gigabytes.
- Dead rows are squeezed out when they are the larger part, in one go: about 15 ms for each million rows.
- The log is compacted by moving live messages to its end; each message is written up to twice over its life for each
  doubling of the log.
- A stream that allows schedules reads all its messages when it is opened: the index does not know them.
- Compression is accepted and ignored: the journal is not compressed.
- `no_erase` makes no difference: deleted bytes stay in the journal until their segment goes.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from strandline.lazy_imports import lazy_names as _lazy_names

if _TYPE_CHECKING:
    from strandline.broker.api.codes import ApiError
    from strandline.broker.api.config import StreamConfig
    from strandline.broker.embedded_server import running, serve
    from strandline.broker.server import Server
    from strandline.broker.settings import ServerSettings
    from strandline.broker.streams.stream import Stream

__all__ = ["ApiError", "Server", "ServerSettings", "Stream", "StreamConfig", "running", "serve"]

# Import what is offered when it is first asked for: a command that only reads settings starts at once.
__getattr__ = _lazy_names(
    __name__,
    {
        "api.codes": ("ApiError",),
        "api.config": ("StreamConfig",),
        "embedded_server": ("running", "serve"),
        "server": ("Server",),
        "settings": ("ServerSettings",),
        "streams.stream": ("Stream",),
    },
)
