"""Streams that copy others: mirrors, which keep sequences and times, and sources, which several streams flow into.

**Promise.** A copy gets every message of its origin that its filter lets through and that the origin still has when its
turn comes, once and in order; through crashes of either side, lost connections, purges of the origin, and its deletion.
A source whose origin was made anew begins with the new one from its beginning, as nats-server does; a mirror goes on
after the last sequence it has.

**Invariant.** Where to go on is what the copy holds. A mirror's last sequence says it; for a source it is recorded in
the stream's log in the same append as its messages (`streams.copying`). There is nothing beside the stream that could
be ahead of it or behind.

**Parts.** `names` and `plans` decide, without I/O: what a source is called, what is taken, from where, how it is kept.
A `Feed` is one origin of one stream: `local` reads a stream of the same account where it is, `remote` has a thread that
reads a stream of another server (`origins`) as nats-server's mirrors do. `Mirrors` keeps all feeds of an account going.

**Trade-offs.** A remote is named by the API prefix in `external`, which the settings map to an address and credentials,
since there are no leaf nodes (docs/decisions/0018-remotes-by-api-prefix.md). `external.deliver` has no meaning here.
"""

from strandline.broker.mirrors.service import Mirrors
from strandline.broker.mirrors.source_names import stream_identity

__all__ = ["Mirrors", "stream_identity"]
