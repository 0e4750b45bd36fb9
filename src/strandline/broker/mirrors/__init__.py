"""Streams that copy others: mirrors, which keep sequences and times, and sources, which several streams flow into.

**Promise.** A copy gets every message of its origin that its filter lets through and that the origin still has when the
copy reads it, once and in order; through crashes of either side, lost connections, purges of the origin, and its
deletion. When the origin was deleted and created again, a source begins at the beginning of the new one, as nats-server
does; a mirror goes on after its last sequence.

**Invariant.** A copy goes on from what it holds: a mirror from its last sequence, a source from the position that the
stream's log has in the same append as its messages (`streams.copier`). Nothing beside the stream could be ahead of it
or behind it.

**Parts.** `source_names` and `copy_plan` decide without I/O: the name of a source, which messages it takes, from where,
and how they are stored. A `Feed` is one origin of one stream. `local_feed` reads a stream of the same account in place;
`remote_feed` has a thread that reads a stream of another server (`nats_origin`) as nats-server's mirrors do. `Mirrors`
runs all feeds of an account.

**Trade-offs.** A remote is named by the API prefix in `external`, which the settings map to an address and credentials,
since there are no leaf nodes (docs/decisions/0018-remotes-by-api-prefix.md). `external.deliver` has no meaning here.
"""

from strandline.broker.mirrors.service import Mirrors
from strandline.broker.mirrors.source_names import stream_identity

__all__ = ["Mirrors", "stream_identity"]
