"""What a fold that Spark builds or keeps says of its source: options, scope, and whether what is there is the truth.

Invariants: the scope of a bucket is what `watch_applied` would write for the same prefixes, so that either goes on from
the other's fold.
"""

from collections.abc import Mapping

from blake3 import blake3

from strandline.errors import Conflict
from strandline.fold.scopes import DIGEST_BYTES, Scope, StoredScope
from strandline.kv.nats.streams import StreamState
from strandline.protocol.repairs import listing_floor, listing_is_truth
from strandline.spark.journals.errors import refused
from strandline.spark.streams.options import Kind, StreamOptions, parse_batch_options

_RANGE = ("startingoffset", "startingtimestamp", "endingoffset", "endingtimestamp")


class HistoryEvicted(Conflict):
    """The stream has evicted current values, so that what it holds is not all that was written and not deleted."""

    def __init__(self, target: str, first: int) -> None:
        hint = "build from a copy that keeps everything; or set failOnDataLoss to false for what is still there"
        super().__init__(f"{target} evicts current values, and may have before {first}", hint=hint)
        self.add_note(hint)
        self.target = target
        self.first = first


def options_of(options: Mapping[str, str]) -> StreamOptions:
    """Return the options of a stream or bucket that a fold is made of, by its changes."""
    given = {name.lower(): str(value) for name, value in options.items()}
    ranged = [name for name in options if name.lower() in _RANGE or name.lower() == "view"]
    if ranged:
        raise refused(f"a fold is of all that there is, and takes no {', '.join(ranged)}", "leave it out")
    kinds: list[Kind] = [kind for kind in ("stream", "bucket") if given.get(kind)]
    if len(kinds) != 1:
        raise refused("a fold is made of one stream or bucket", "give option stream or bucket")
    (kind,) = kinds
    return parse_batch_options({**given, "view": "changes"} if kind == "bucket" else given, kind)


def stored_scope(options: StreamOptions) -> StoredScope:
    """Return the keys that are read as a mark says it; of the subjects of a stream, eight bytes stand for them."""
    if options.target.kind == "bucket":
        return Scope.of(*options.filters)
    if not options.filters:
        return Scope()
    context = "strandline stream scope"
    return blake3("\n".join(sorted(options.filters)).encode(), derive_key_context=context).digest(DIGEST_BYTES)


def check_truth(state: StreamState, options: StreamOptions) -> None:
    """Raise `HistoryEvicted` unless all that was written and not deleted is still there, or loss is allowed."""
    removed = state.last + 1 - state.first - state.messages
    floor = listing_floor(state.first, removed, in_order=not state.allows_ttl)
    if options.is_loss_refused and not listing_is_truth(floor, evicts=state.evicts_current_values, seen=False):
        raise HistoryEvicted(str(options.target), state.first)
