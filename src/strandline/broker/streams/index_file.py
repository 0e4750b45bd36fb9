"""The index file: the state of a stream at one place of its log, so that a restart need not read the log before it.

    0   8s   magic "STRANDLI"
    8   u16  version, 1
    10  u16  zero
    12  u32  CRC-32C of bytes 0-11, then of byte 16 to the end
    16  16s  identity of the journal
    32  u64  place in the journal up to which (exclusive) this is the state
    40  u32  length of the facts
    44  u32  zero
    48       facts, JSON, spaces to a multiple of 8; then the columns (docs/formats/broker-stream.md)

Invariants: the index is only a shortcut: without it, or with a damaged one, reading the log from its beginning has the
same result. It is written only when everything up to its place is on stable storage, so it is never ahead of the log.
"""

import json
import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from strandline.broker.api.config import StreamConfig
from strandline.broker.api.schema import from_json, to_json
from strandline.broker.streams.records import KnownId, Position
from strandline.broker.streams.state import State
from strandline.checksums import crc32c

INDEX_NAME = "index"
VERSION = 1
_MAGIC = b"STRANDLI"
_HEAD = struct.Struct("<8sHH")
_CRC = struct.Struct("<I")
_BODY = struct.Struct("<16sQII")
_BODY_AT = _HEAD.size + _CRC.size
_ROWS = (("sequence", "<u8"), ("place", "<i8"), ("time", "<i8"), ("subject", "<u4"), ("size", "<u4"), ("moved", "?"))


@dataclass(frozen=True, slots=True)
class Captured:
    """A copy of a state, so that it can be written while the state changes."""

    facts: dict[str, Any]
    columns: list[npt.NDArray[Any]]
    identifiers: list[bytes]
    names: list[bytes]


def capture(state: State) -> Captured:
    """Copy the state; a few milliseconds for each million messages."""
    index = state.index
    live = np.flatnonzero(index.rows.live[: index.used])
    ttl_sequences, ttl_dues = state.expiry.entries()
    known = state.dedupe.entries()
    facts = {
        "config": to_json(state.config).decode(),
        "configs": [[place, text.decode()] for place, text in state.configs],
        "created": state.created_ns,
        "now": state.now_ns,
        "last_seq": index.last_seq,
        "last_time": index.last_time,
        "last_id": state.last_id.hex(),
        "origins": [[name.hex(), at.sequence, at.identity.hex()] for name, at in state.origins.items()],
        "rows": len(live),
        "subjects": len(index.subjects),
        "ttl": len(ttl_sequences),
        "never": len(state.expiry.never),
        "known": len(known),
    }
    columns = [
        *(getattr(index.rows, name)[live].astype(kind, copy=False) for name, kind in _ROWS),
        ttl_sequences.astype("<u8"),
        ttl_dues.astype("<i8"),
        np.sort(np.fromiter(state.expiry.never, np.uint64, len(state.expiry.never))).astype("<u8"),
        np.array([entry.sequence for entry in known], "<u8"),
        np.array([entry.time_ns for entry in known], "<i8"),
    ]
    return Captured(facts, columns, [entry.identifier for entry in known], index.subjects.names[:])


def format_snapshot(captured: Captured, identity: bytes, place: int) -> bytes:
    """Return the file."""
    text = json.dumps(captured.facts).encode()
    text += b" " * (-len(text) % 8)
    parts = [
        _BODY.pack(identity, place, len(text), 0),
        text,
        *(column.tobytes() for column in captured.columns),
        _lengths(captured.identifiers),
        _lengths(captured.names),
        *captured.identifiers,
        *captured.names,
    ]
    head = _HEAD.pack(_MAGIC, VERSION, 0)
    body = b"".join(parts)
    return b"".join([head, _CRC.pack(crc32c(body, crc32c(head))), body])


def _lengths(values: list[bytes]) -> bytes:
    return np.array(list(map(len, values)), "<u4").tobytes()


class _Reader:
    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at

    def column(self, kind: str, count: int) -> npt.NDArray[Any]:
        found = np.frombuffer(self._data, kind, count, self._at)
        self._at += found.nbytes
        return found

    def texts(self, lengths: npt.NDArray[Any]) -> list[bytes]:
        ends = np.concatenate([[self._at], self._at + np.cumsum(lengths, dtype=np.int64)]).tolist()
        self._at = ends[-1]
        data = self._data
        return [data[begin:end] for begin, end in pairwise(ends)]


def parse_snapshot(data: bytes, identity: bytes) -> tuple[State, int] | None:
    """Return the state and its place; None if this is not a whole index of that journal, of this version."""
    if len(data) < _BODY_AT + _BODY.size or data[: _HEAD.size] != _HEAD.pack(_MAGIC, VERSION, 0):
        return None
    crc = crc32c(memoryview(data)[_BODY_AT:], crc32c(data[: _HEAD.size]))
    if crc != _CRC.unpack_from(data, _HEAD.size)[0]:
        return None
    owner, place, size, _ = _BODY.unpack_from(data, _BODY_AT)
    if owner != identity:
        return None
    facts_at = _BODY_AT + _BODY.size
    facts = json.loads(data[facts_at : facts_at + size])
    return _load(facts, _Reader(data, facts_at + size)), place


def _load(facts: dict[str, Any], reader: _Reader) -> State:
    state = State(from_json(StreamConfig, facts["config"].encode()), facts["created"])
    state.configs = [(place, text.encode()) for place, text in facts["configs"]]
    index = state.index
    count = facts["rows"]
    index.rows.reserve(count)
    for name, kind in _ROWS:
        getattr(index.rows, name)[:count] = reader.column(kind, count)
    index.rows.live[:count] = True
    ttl = zip(reader.column("<u8", facts["ttl"]).tolist(), reader.column("<i8", facts["ttl"]).tolist(), strict=True)
    for sequence, due_ns in ttl:
        state.expiry.add_at(sequence, due_ns)
    state.expiry.never = set(reader.column("<u8", facts["never"]).tolist())
    sequences, times = reader.column("<u8", facts["known"]).tolist(), reader.column("<i8", facts["known"]).tolist()
    known_lengths, name_lengths = reader.column("<u4", facts["known"]), reader.column("<u4", facts["subjects"])
    known = zip(reader.texts(known_lengths), sequences, times, strict=True)
    state.dedupe.load([KnownId(*entry) for entry in known])
    index.subjects.load(reader.texts(name_lengths))
    index.subjects.length[: facts["subjects"]] = name_lengths
    index.restore(count)
    index.last_seq, index.last_time = facts["last_seq"], facts["last_time"]
    state.last_id = bytes.fromhex(facts["last_id"])
    for name, sequence, identity in facts.get("origins", ()):
        state.origins[bytes.fromhex(name)] = Position(sequence, bytes.fromhex(identity))
    state.now_ns = facts["now"]
    return state
