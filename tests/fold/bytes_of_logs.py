"""Snapshot logs assembled by hand from the tables of `docs/formats/snapshot-log.md`, without the code under test."""

import struct
import zlib
from pathlib import Path

from strandline.files import File
from strandline.sim import SimDisk

HEADER = b"PGSS" + struct.pack("<H", 3)
State = tuple[dict[bytes, tuple[bytes, bytes]], bytes]
"""Values and versions by key, and the cursor."""


def put(key: bytes, value: bytes, version: bytes) -> bytes:
    lengths = struct.pack("<H", len(key)), struct.pack("<I", len(value)), struct.pack("<B", len(version))
    return checked(b"\x01" + lengths[0] + key + lengths[1] + value + lengths[2] + version)


def delete(key: bytes, version: bytes) -> bytes:
    return checked(b"\x02" + struct.pack("<H", len(key)) + key + struct.pack("<B", len(version)) + version)


def cursor(value: bytes) -> bytes:
    return checked(b"\x03" + struct.pack("<B", len(value)) + value)


def checked(body: bytes) -> bytes:
    return struct.pack("<I", zlib.crc32(body)) + body


def small_log() -> tuple[list[bytes], list[State]]:
    """Return the records of a small log, and the state before each of them and after the last."""
    first, second, third = (number.to_bytes(8, "big") for number in (258, 259, 260))
    steps: list[tuple[bytes, bytes | None, bytes]] = [
        (b"a", b"one\x00\x00\x00", first),
        (b"key.b", b"", second),
        (b"", None, second),
        (b"a", b"two" * 5, third),
        (b"key.b", None, third),
        (b"", None, third),
        (b"\x01\x02\x03", bytes(20), b"0123456789"),
        (b"", None, b"\x00" * 8),
    ]
    records: list[bytes] = []
    states: list[State] = [({}, b"")]
    for key, value, version in steps:
        entries, at = dict(states[-1][0]), states[-1][1]
        if not key:
            records.append(cursor(version))
            at = version
        elif value is None:
            records.append(delete(key, version))
            entries.pop(key)
        else:
            records.append(put(key, value, version))
            entries[key] = (value, version)
        states.append((entries, at))
    return records, states


PLACE = Path("/folds/fold.log")


def disk_with(content: bytes) -> SimDisk:
    disk = SimDisk()
    disk.make_folder(PLACE.parent)
    file: File = disk.open(PLACE, "create")
    file.pwritev([content], 0)
    file.sync()
    disk.sync_folder(PLACE.parent)
    return disk
