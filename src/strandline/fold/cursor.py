"""The cursor of a watched fold: a revision, and the bucket, scope and mode it belongs to.

A cursor says up to which revision of which bucket, seen through which scope and kept in which mode, the fold holds
everything. So a fold never resumes in another log, and never trusts a listing that its bucket may have evicted from:

    revision u64 BE ‖ flags u8 ‖ identity 8 bytes ‖ since u64 BE (ns) ‖ floor u64 BE ‖ kind of scope u8 ‖ scope

    flags           bit 0: seen evicting, bit 1: seen dropping, bit 2: has deadlines, bits 3 and 4: `FoldMode`
    kind of scope   0: unknown, nothing follows; 1: a digest of 8 bytes; 2: the prefixes, with a line feed between them

Invariants: `parse_fold_cursor` undoes `format_fold_cursor`; cursors of one bucket sort as their revisions do. Revision
0 is none, so a cursor can remember what was seen of a bucket before anything of it is stored. Zeros as identity or
scope are "unknown", which agrees with everything. A scope whose prefixes do not fit is stored as its digest. Cursors
written before modes existed are read too: a bare revision of 8 bytes, 25 bytes without `since`, and 33 with, both with
a digest of the scope.

`since_ns` is a time, by the clock of the fold's process, at which the log did not yet reach beyond `revision`: whatever
lies after it in the log was written later. It comes from an observation of the bucket, never from the time of a commit,
for that says nothing about messages in flight; and only while age alone evicts. 0 is "unknown".

`floor` is for a mirror the log's first revision when the fold was last cleared of entries below it, and for an archive
the revision from which on it is complete. 0 is "unknown".
"""

import struct
from typing import NamedTuple

from strandline.errors import FormatError, InvalidInput
from strandline.fold.records import CURSOR_BYTES_MAX
from strandline.fold.scopes import DIGEST_BYTES, UNKNOWN, Scope, StoredScope
from strandline.kv import NO_CURSOR, WatchCursor, format_cursor
from strandline.kv.errors import InvalidKey
from strandline.protocol.fold_modes import FoldMode

__all__ = ["DIGEST_BYTES", "UNKNOWN", "FoldCursor", "format_fold_cursor", "parse_fold_cursor"]

_REVISION_MAX = 2**64 - 1
_REVISION = struct.Struct(">Q")
_FIRST = struct.Struct(">QB8s8s")
_SECOND = struct.Struct(">QB8s8sQ")
_LAYOUT = struct.Struct(">QB8sQQB")
_SEEN_EVICTING, _SEEN_DROPPING, _HAS_DEADLINES = 1, 2, 4
_MODE_SHIFT, _MODE_MASK = 3, 3
_FLAGS_MAX = 0x1F
_NO_SCOPE, _DIGEST, _PREFIXES = 0, 1, 2


class FoldCursor(NamedTuple):
    """A revision of a bucket, and what the fold knows of that bucket."""

    revision: int = 0
    seen_evicting: bool = False
    identity: bytes = UNKNOWN
    scope: StoredScope = UNKNOWN
    since_ns: int = 0
    mode: FoldMode = FoldMode.UNKNOWN
    floor: int = 0
    seen_dropping: bool = False
    has_deadlines: bool = False

    @property
    def watch_cursor(self) -> WatchCursor:
        """Return where a watch goes on, `NO_CURSOR` if it begins with the state."""
        return format_cursor(self.revision) if self.revision else NO_CURSOR


def format_fold_cursor(cursor: FoldCursor) -> WatchCursor:
    """Return the cursor as a store keeps it."""
    if len(cursor.identity) != DIGEST_BYTES or (isinstance(cursor.scope, bytes) and len(cursor.scope) != DIGEST_BYTES):
        raise InvalidInput(f"the identity and the digest of the scope of a cursor are {DIGEST_BYTES} bytes each")
    if not all(0 <= number <= _REVISION_MAX for number in (cursor.revision, cursor.since_ns, cursor.floor)):
        raise InvalidInput("revision, time and floor of a cursor fit into 64 bits without sign")
    flags = (
        cursor.seen_evicting * _SEEN_EVICTING
        | cursor.seen_dropping * _SEEN_DROPPING
        | cursor.has_deadlines * _HAS_DEADLINES
        | cursor.mode << _MODE_SHIFT
    )
    kind, scope = _format_scope(cursor.scope)
    return WatchCursor(
        _LAYOUT.pack(cursor.revision, flags, cursor.identity, cursor.since_ns, cursor.floor, kind) + scope
    )


def parse_fold_cursor(stored: WatchCursor) -> FoldCursor:
    """Return the cursor of a store's bytes, empty for `NO_CURSOR`; `FormatError` for other bytes."""
    match len(stored):
        case 0:
            return FoldCursor()
        case _REVISION.size:
            return FoldCursor(_REVISION.unpack(stored)[0])
        case _FIRST.size:
            return _parse_old(*_FIRST.unpack(stored))
        case _SECOND.size:
            return _parse_old(*_SECOND.unpack(stored))
        case length if length < _LAYOUT.size:
            raise FormatError(
                "a fold's cursor", f"{length} bytes are no cursor of a fold", hint="it was not written by watch_applied"
            )
    revision, flags, identity, since_ns, floor, kind = _LAYOUT.unpack_from(stored)
    mode = flags >> _MODE_SHIFT & _MODE_MASK
    if flags > _FLAGS_MAX or mode > max(FoldMode) or kind > _PREFIXES:
        raise FormatError("a fold's cursor", f"flags {flags:#x} are of a later version", hint="use that version")
    scope = _parse_scope(kind, stored[_LAYOUT.size :])
    seen = bool(flags & _SEEN_EVICTING), bool(flags & _SEEN_DROPPING)
    return FoldCursor(
        revision, seen[0], identity, scope, since_ns, FoldMode(mode), floor, seen[1], bool(flags & _HAS_DEADLINES)
    )


def _parse_old(revision: int, flags: int, identity: bytes, scope: bytes, since_ns: int = 0) -> FoldCursor:
    """Return a cursor written before modes existed; anything may have dropped values then."""
    if flags & ~_SEEN_EVICTING:
        raise FormatError("a fold's cursor", f"flags {flags:#x} are of a later version", hint="use that version")
    seen = bool(flags & _SEEN_EVICTING)
    return FoldCursor(revision, seen, identity, scope, since_ns, seen_dropping=seen)


def _format_scope(scope: StoredScope) -> tuple[int, bytes]:
    if isinstance(scope, bytes):
        return (_NO_SCOPE, b"") if scope == UNKNOWN else (_DIGEST, scope)
    text = "\n".join(scope.prefixes).encode()
    return (_PREFIXES, text) if len(text) <= CURSOR_BYTES_MAX - _LAYOUT.size else (_DIGEST, scope.digest)


def _parse_scope(kind: int, stored: bytes) -> StoredScope:
    if kind == _PREFIXES:
        try:
            return Scope(tuple(stored.decode().split("\n")))
        except (UnicodeDecodeError, InvalidKey) as wrong:
            raise FormatError("a fold's cursor", "its scope is not a list of prefixes") from wrong
    if len(stored) != kind * DIGEST_BYTES:
        raise FormatError("a fold's cursor", f"{len(stored)} bytes are no scope of kind {kind}")
    return stored or UNKNOWN
