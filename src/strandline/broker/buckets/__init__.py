"""Key-value buckets of a server in the same process, without a socket: the contracts of `strandline.kv`.

**Promise.** What `strandline.kv` promises. They are the buckets that every NATS client sees: what one writes, the other
reads. A watch knows exactly what it has told: it says `CursorExpired` only when an update went that nothing replaces.

**Use.** `EmbeddedConnection.to(server)` connects to a server that `strandline.broker.serve` runs.

**Parts.** `EmbeddedConnection` hands out buckets. Writes and questions go through `strandline.kv.nats`, carried by
`EmbeddedTransport` instead of a client; reads and watches are columns of the stream itself.

**Threads.** The server's state belongs to its loop's thread. A connection that is used in another loop has its work
done there, and waits; when the server closes, it hears `Closed`, whether or not the server's loop goes on.
"""

from strandline.broker.buckets.connection import EmbeddedConnection, EmbeddedStore

__all__ = ["EmbeddedConnection", "EmbeddedStore"]
