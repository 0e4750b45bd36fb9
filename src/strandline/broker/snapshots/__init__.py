"""Streams on the move: SNAPSHOT sends one with its consumers to a client, RESTORE takes one back.

**Promise.** A snapshot taken here can be restored here and by nats-server 2.15, and one of nats-server's here;
sequences, times, headers and what consumers have seen are the same afterwards; what was to go or to fire by itself
does so. A stream is restored as a whole, with its consumers, or not at all, whatever happens meanwhile, and nothing of
a restore goes on after its server.

**How.** The format is nats-server's: an `archive` of plain entries inside an `s2` stream. `Sending` reads and sends it
within the client's window; `Restoring` stores it aside, and at the end, on a thread that is waited for, writes the
consumers beside it and puts all of it in its place. `Restores` keeps its name, subjects and room free meanwhile.

**Trade-offs.**

- What is sent is not compressed: it is as large as the messages.
- A snapshot is of the messages that were there when it began; those that go while it is sent may be missing, and each
  consumer is as it was at some time meanwhile.
- Snapshots of nats-server before 2.15 hold its own files and are refused.
"""

from strandline.broker.snapshots.service import SnapshotService

__all__ = ["SnapshotService"]
