"""Key-value buckets of a server in the same process, without a socket: the contracts of `strandline.kv`.

**Promise.** What `strandline.kv` promises. NATS clients see the same buckets. A watch knows exactly which updates it
has delivered: it raises `CursorExpired` only when an update was removed that no later one replaces.

**Use.** `EmbeddedConnection.to(server)` connects to a server that `strandline.broker.serve` runs.

**Parts.** `EmbeddedConnection` hands out buckets. Writes and requests go through `strandline.kv.nats` over
`EmbeddedTransport`; reads and watches use columns of the stream itself.

**Threads.** The server's state belongs to its loop's thread. A connection in another loop runs its work there and
awaits the result; when the server closes, it raises `Closed`, whether or not the server's loop still runs.
"""

from strandline.broker.buckets.connection import EmbeddedConnection, EmbeddedStore

__all__ = ["EmbeddedConnection", "EmbeddedStore"]
