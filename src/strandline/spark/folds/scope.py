"""The source of a fold that Spark builds or keeps current: its options, its scope, and the first cursor.

Invariants: the scope of a bucket is that of `watch_applied` for the same prefixes, so that either goes on from
the other's fold.
"""

from collections.abc import Mapping

from blake3 import blake3

from strandline.fold.cursor import FoldCursor
from strandline.fold.scopes import DIGEST_BYTES, Scope, StoredScope
from strandline.kv.nats.layout import retention_of
from strandline.nats.streams import StreamState
from strandline.protocol.fold_modes import FoldMode, chosen_mode
from strandline.spark.errors import invalid_input
from strandline.spark.streams.options import Kind, StreamOptions, parse_batch_options

_RANGE = ("startingoffset", "startingtimestamp", "endingoffset", "endingtimestamp")


def options_of(options: Mapping[str, str]) -> StreamOptions:
    """Return the options of a stream or bucket that a fold is made of, by its changes."""
    given = {name.lower(): str(value) for name, value in options.items()}
    ranged = [name for name in options if name.lower() in _RANGE or name.lower() == "view"]
    if ranged:
        raise invalid_input(f"a fold is of all that there is, and takes no {', '.join(ranged)}", "leave it out")
    kinds: list[Kind] = [kind for kind in ("stream", "bucket") if given.get(kind)]
    if len(kinds) != 1:
        raise invalid_input("a fold is made of one stream or bucket", "give option stream or bucket")
    (kind,) = kinds
    return parse_batch_options({**given, "view": "changes"} if kind == "bucket" else given, kind)


def stored_scope(options: StreamOptions) -> StoredScope:
    """Return the keys that are read as a cursor says it; of the subjects of a stream, eight bytes stand for them."""
    if options.target.kind == "bucket":
        return Scope.of(*options.filters)
    if not options.filters:
        return Scope()
    context = "strandline stream scope"
    return blake3("\n".join(sorted(options.filters)).encode(), derive_key_context=context).digest(DIGEST_BYTES)


def first_cursor(state: StreamState, options: StreamOptions, mode: FoldMode | None) -> FoldCursor:
    """Return the cursor of a fold that begins now, before its first revision."""
    retention = retention_of(state)
    return FoldCursor(
        seen_evicting=retention.evicts_current_values,
        identity=state.identity,
        scope=stored_scope(options),
        mode=chosen_mode(FoldMode.UNKNOWN, mode, seen_evicting=False),
        seen_dropping=retention.drops_current_values,
    )
