"""The mark: what a watched fold stores as its cursor, so that it never goes on in another log, or wiser than it is.

A mark says up to which revision of which bucket, seen through which scope, the fold holds everything. 33 bytes:

    revision u64 BE ‖ flags u8 (bit 0: seen evicting) ‖ identity 8 bytes ‖ scope digest 8 bytes ‖ since u64 BE (ns)

Invariants: `parse_mark` undoes `format_mark`; marks of one bucket sort as their revisions do. Revision 0 is none, so a
mark can remember what was seen of a bucket before anything of it is stored. Zeros as identity or scope are "unknown",
which agrees with everything. A bare revision of eight bytes, and 25 bytes without `since`, are read too.

`since_ns` is a time, by the clock of the fold's process, at which the log did not yet reach beyond `revision`: whatever
lies after it in the log was written later. It comes from looking at the bucket, never from the time of a commit, for
that says nothing about what was on its way; and only while age alone evicts. 0 is "unknown".
"""

import struct
from typing import NamedTuple

from strandline.errors import FormatError, InvalidInput
from strandline.kv import NO_CURSOR, WatchCursor, format_cursor

DIGEST_BYTES = 8
UNKNOWN = bytes(DIGEST_BYTES)
"""The identity of a bucket that has none, and the scope of a fold that never said."""

_REVISION_MAX = 2**64 - 1
_REVISION = struct.Struct(">Q")
_FIRST = struct.Struct(">QB8s8s")
_MARK = struct.Struct(">QB8s8sQ")
_SEEN_EVICTING = 1


class Mark(NamedTuple):
    """Where a fold stands, and on what."""

    revision: int = 0
    seen_evicting: bool = False
    identity: bytes = UNKNOWN
    scope: bytes = UNKNOWN
    since_ns: int = 0

    @property
    def cursor(self) -> WatchCursor:
        """Return where a watch goes on, `NO_CURSOR` if it begins with the state."""
        return format_cursor(self.revision) if self.revision else NO_CURSOR


def format_mark(mark: Mark) -> WatchCursor:
    """Return a mark as the cursor of a store."""
    if len(mark.identity) != DIGEST_BYTES or len(mark.scope) != DIGEST_BYTES:
        raise InvalidInput(f"identity and scope of a mark are {DIGEST_BYTES} bytes each")
    if not (0 <= mark.revision <= _REVISION_MAX and 0 <= mark.since_ns <= _REVISION_MAX):
        raise InvalidInput("revision and time of a mark fit into 64 bits without sign")
    flags = _SEEN_EVICTING if mark.seen_evicting else 0
    return WatchCursor(_MARK.pack(mark.revision, flags, mark.identity, mark.scope, mark.since_ns))


def parse_mark(cursor: WatchCursor) -> Mark:
    """Return the mark of a store's cursor; that of `NO_CURSOR` is empty. `FormatError` for bytes that are no mark."""
    match len(cursor):
        case 0:
            return Mark()
        case _REVISION.size:
            return Mark(_REVISION.unpack(cursor)[0])
        case _FIRST.size:
            revision, flags, identity, scope = _FIRST.unpack(cursor)
            since_ns = 0
        case _MARK.size:
            revision, flags, identity, scope, since_ns = _MARK.unpack(cursor)
        case length:
            raise FormatError("a fold's cursor", f"{length} bytes are no mark", hint="it was not made by watch_applied")
    if flags & ~_SEEN_EVICTING:
        raise FormatError("a fold's cursor", f"flags {flags:#x} are of a later version", hint="use that version")
    return Mark(revision, bool(flags & _SEEN_EVICTING), identity, scope, since_ns)
