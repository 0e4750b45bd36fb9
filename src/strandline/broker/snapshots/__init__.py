"""Streams on the move: SNAPSHOT sends one with its consumers to a client, RESTORE takes one back.

**Promise.** A snapshot taken here can be restored here and by nats-server 2.15, and one of nats-server's here;
sequences, times, headers and what consumers have seen are the same afterwards. A stream is restored as a whole or not
at all.

**How.** The format is nats-server's: an `archive` of plain entries inside an `s2` stream. `Sending` reads and sends it
within the client's window; `Restoring` stores it aside and puts it in its place at the end.

**Trade-offs.**

- What is sent is not compressed: it is as large as the messages.
- A snapshot is of the messages that were there when it began; those that go while it is sent may be missing.
- Snapshots of nats-server before 2.15 hold its own files and are refused.
"""

from strandline.broker.snapshots.service import SnapshotService, SnapshotSurroundings

__all__ = ["SnapshotService", "SnapshotSurroundings"]
