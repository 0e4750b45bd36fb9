"""Columns as PostgreSQL's binary arrays, built whole rather than value by value.

    dimensions = 1, has nulls, element type, count, lower bound = 1      five big-endian i32
    each element                                                         its length as i32 (-1 is null), its bytes

The parameter says nothing about its type: the statement's cast (`%s::bytea[]`) does.
"""

import struct
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.adapt import Dumper

_HEADER = struct.Struct(">iiIii")
_BOOL, _BYTEA, _INT8, _INT2, _INT4, _TEXT = 16, 17, 20, 21, 23, 25
_NULL = b"\xff\xff\xff\xff"


class BinaryArray(bytes):
    """An array as the server reads it."""

    __slots__ = ()


def digests(column: Sequence[bytes], size: int = 32) -> BinaryArray:
    """Return values of one size as `bytea[]`."""
    rows = np.empty(len(column), [("size", ">i4"), ("value", f"V{size}")])
    rows["size"] = size
    rows["value"] = np.frombuffer(b"".join(column), f"V{size}")
    return _array(_BYTEA, len(column), rows.tobytes())


def byteas(column: Sequence[bytes]) -> BinaryArray:
    """Return values of any size as `bytea[]`."""
    pack = struct.Struct(">i").pack
    return _array(_BYTEA, len(column), b"".join([pack(len(value)) + value for value in column]))


def int8s(column: Sequence[int]) -> BinaryArray:
    """Return numbers as `int8[]`."""
    return _fixed(_INT8, ">i8", column)


def int4s(column: Sequence[int]) -> BinaryArray:
    """Return numbers as `int4[]`."""
    return _fixed(_INT4, ">i4", column)


def int2s(column: Sequence[int]) -> BinaryArray:
    """Return numbers as `int2[]`."""
    return _fixed(_INT2, ">i2", column)


def bools(column: Sequence[bool]) -> BinaryArray:
    """Return truth values as `bool[]`."""
    return _fixed(_BOOL, ">i1", column)


def optional_int8s(column: Sequence[int | None]) -> BinaryArray:
    """Return numbers, or nulls, as `int8[]`."""
    if None not in column:
        return _fixed(_INT8, ">i8", column)
    pack = struct.Struct(">iq").pack
    return _nullable(_INT8, [_NULL if value is None else pack(8, value) for value in column])


def optional_texts(column: Sequence[str | None]) -> BinaryArray:
    """Return texts, or nulls, as `text[]`; most are the same, so each is encoded once."""
    pack = struct.Struct(">i").pack
    made: dict[str | None, bytes] = {None: _NULL}
    for value in set(column):
        if value is not None:
            data = value.encode()
            made[value] = pack(len(data)) + data
    return _nullable(_TEXT, [made[value] for value in column])


def register(connection: "Connection[Any]") -> None:
    """Let a connection take binary arrays as parameters."""
    connection.adapters.register_dumper(BinaryArray, _dumper())


@cache
def _dumper() -> "type[Dumper]":
    """Return the adapter that sends an array unchanged; psycopg is imported only where a connection exists."""
    from psycopg.adapt import Dumper  # noqa: PLC0415 - see above
    from psycopg.pq import Format  # noqa: PLC0415 - see above

    class ArrayDumper(Dumper):
        format = Format.BINARY

        def dump(self, obj: BinaryArray) -> bytes:
            return obj

    return ArrayDumper


def _fixed(oid: int, kind: str, column: Sequence[int | None]) -> BinaryArray:
    rows = np.empty(len(column), [("size", ">i4"), ("value", kind)])
    rows["size"] = rows.dtype["value"].itemsize
    rows["value"] = column
    return _array(oid, len(column), rows.tobytes())


def _nullable(oid: int, elements: list[bytes]) -> BinaryArray:
    return _array(oid, len(elements), b"".join(elements), has_nulls=_NULL in elements)


def _array(oid: int, count: int, elements: bytes, *, has_nulls: bool = False) -> BinaryArray:
    return BinaryArray(_HEADER.pack(1, has_nulls, oid, count, 1) + elements)
