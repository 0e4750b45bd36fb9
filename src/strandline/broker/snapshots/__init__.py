"""Snapshots of streams: SNAPSHOT sends a stream with its consumers to a client, RESTORE takes one back.

**Promise.** A snapshot taken here can be restored here and by nats-server 2.15, and a snapshot of nats-server can be
restored here. Sequences, times, headers and the positions of consumers are the same afterwards; expiry and schedules go
on. A restore brings back the whole stream with its consumers, or nothing, and ends with its server.

**How.** The format is nats-server's: an `archive` of plain entries inside an `s2` stream. `SnapshotSender` reads a
stream and sends it within the client's window. `Restore` stores an archive in a folder of its own; at the end a thread,
which the server waits for, writes the consumers beside it and renames the folder. `RestoreService` reserves the name,
subjects and room of the stream meanwhile.

**Trade-offs.**

- A snapshot is not compressed: it is as large as the messages.
- A snapshot has the messages that the stream had when it began. Messages that are removed while it is sent may be
  missing, and the position of each consumer is read at some time meanwhile.
- Snapshots of nats-server before 2.15 hold its own files and are refused.
"""

from strandline.broker.snapshots.service import SnapshotService

__all__ = ["SnapshotService"]
