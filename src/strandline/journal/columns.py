"""The columns of an append, in Arrow's layout, checked before anything is queued.

A variable column is `i32 offsets[n+1]` and the bytes; timestamps are `i64[n]`, nanoseconds. Several appends become one
batch by shifting offsets and chaining the bytes, so a record's bytes are copied once, by the caller's `join`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.errors import InvalidInput, RecordTooLarge, WrongType
from strandline.files import Buffer
from strandline.journal.config import JournalConfig

Offsets: TypeAlias = npt.NDArray[np.int32]
Times: TypeAlias = npt.NDArray[np.int64]


class ArrowArray(Protocol):
    """An Arrow array for the type checker, which cannot tell it from a list of text: pyarrow has no types."""

    @property
    def null_count(self) -> int:
        """How many nulls there are."""
        ...

    def buffers(self) -> list[Any]:
        """Return the memory of the array."""
        ...

    def __len__(self) -> int:
        """Return how many values there are."""
        ...


Values: TypeAlias = Sequence[bytes | bytearray | memoryview] | ArrowArray
Timestamps: TypeAlias = Sequence[int] | npt.NDArray[np.int64]

HAS_VALUE, HAS_KEY, HAS_HEADERS, HAS_TIMESTAMPS = 1, 2, 4, 8
_FEW = 16
_INT64_MAX = 2**63 - 1


@dataclass(slots=True)
class Column:
    """One variable column: offsets into the bytes, which may be in several pieces."""

    offsets: Offsets
    pieces: list[Buffer]
    size: int


@dataclass(slots=True)
class Columns:
    """The columns of one append, ready to be written; `size` is what they take in a batch."""

    count: int
    present: int
    variable: list[Column]
    timestamps: Times | None
    size: int


def _offsets(lengths: list[int]) -> Offsets:
    count = len(lengths)
    if count < _FEW:
        return np.array(list(accumulate(lengths, initial=0)), np.int32)
    if lengths.count(lengths[0]) == count:  # equal records are common, and three times as fast
        return np.arange(count + 1, dtype=np.int32) * np.int32(lengths[0])
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(np.array(lengths, np.int32), out=offsets[1:])
    return offsets


def _column_of_list(name: str, values: Sequence[bytes], config: JournalConfig) -> Column:
    if len(values) == 1 and type(values[0]) is bytes and len(values[0]) <= config.record_bytes_max:
        size = len(values[0])
        return Column(np.array((0, size), np.int32), [values[0]], size)
    try:
        data = b"".join(values)
        lengths = list(map(len, values))
    except TypeError as error:
        raise WrongType(f"{name} must be a sequence of bytes: {error}", hint="encode text with .encode()") from error
    if len(data) > config.record_bytes_max:
        _check_lengths(max(lengths), len(data), config)
    offsets = _offsets(lengths)
    if offsets[-1] != len(data):  # a memoryview of wider items counts items, not bytes
        raise InvalidInput(f"{name} must be bytes; a view of wider items is not")
    return Column(offsets, [data], len(data))


def _column_of_arrow(name: str, array: "pa.Array[Any]", config: JournalConfig) -> Column:
    if not (pa.types.is_binary(array.type) or pa.types.is_string(array.type)):
        raise InvalidInput(f"{name} must be an Arrow binary or string array, not {array.type}")
    if array.null_count:
        raise InvalidInput(f"{name} must not have nulls; there are {array.null_count}")
    count = len(array)
    if not count:
        return Column(_offsets([]), [], 0)
    _, offsets_buffer, data_buffer = array.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32, count + 1, 4 * array.offset)
    first, last = int(offsets[0]), int(offsets[-1])
    lengths = np.diff(offsets)
    if first < 0 or lengths.min() < 0 or last > (0 if data_buffer is None else data_buffer.size):
        raise InvalidInput(f"{name} is not a valid Arrow array: its offsets do not rise, or leave its data")
    _check_lengths(int(lengths.max()), last - first, config)
    data = memoryview(b"" if data_buffer is None else data_buffer)[first:last]
    return Column(offsets - np.int32(first), [data], last - first)


def _check_lengths(longest: int, total: int, config: JournalConfig) -> None:
    if longest > config.record_bytes_max:
        raise RecordTooLarge(longest, config.record_bytes_max)
    if total > config.append_bytes_max:
        raise RecordTooLarge(total, config.append_bytes_max, "append")


def _column(name: str, values: Values, config: JournalConfig) -> Column:
    if isinstance(values, pa.Array):
        return _column_of_arrow(name, values, config)
    if isinstance(values, bytes | str | bytearray):
        raise WrongType(f"{name} must be a sequence of records, not one", hint="put it in a list")
    return _column_of_list(name, cast("Sequence[bytes]", values), config)


def _length(name: str, values: Values) -> int:
    try:
        return len(values)
    except TypeError as error:
        raise WrongType(f"{name} must be a sequence: {error}", hint="put them in a list") from error


def _timestamps(values: Timestamps, count: int) -> Times:
    try:
        times = np.asarray(values)
    except ValueError as error:
        raise InvalidInput(f"timestamps must be whole nanoseconds: {error}") from error
    if times.shape != (count,):
        raise InvalidInput(f"there are {count} values but timestamps of shape {times.shape}")
    kind = times.dtype.kind
    if count and (kind not in "iu" or (kind == "u" and int(times.max()) > _INT64_MAX)):
        raise InvalidInput(f"timestamps must be whole nanoseconds that fit 64 bits, and are {times.dtype}")
    return np.array(times, dtype="<i8")  # a copy: the caller may go on using the array


def columns_of(
    values: Values,
    keys: Values | None,
    headers: Values | None,
    timestamps: Timestamps | None,
    config: JournalConfig,
) -> Columns:
    """Lay out one append; raise `InvalidInput` where it cannot be."""
    count = _length("values", values)
    variable = [_column("values", values, config)]
    present = HAS_VALUE
    for name, bit, column in (("keys", HAS_KEY, keys), ("headers", HAS_HEADERS, headers)):
        if column is not None:
            if _length(name, column) != count:
                raise InvalidInput(f"there are {count} values but {len(column)} {name}")
            variable.append(_column(name, column, config))
            present |= bit
    size = variable[0].size if len(variable) == 1 else sum(column.size for column in variable)
    times = None
    if timestamps is not None:
        times = _timestamps(timestamps, count)
        present |= HAS_TIMESTAMPS
        size += 8 * count
    _check_lengths(0, size, config)
    # What it takes when laid out alone; merged with others it takes no more.
    padded = sum(column.size + -column.size % 8 for column in variable) + (8 * count if times is not None else 0)
    return Columns(count, present, variable, times, padded + 4 * len(variable) * (count + 1 + (count + 1) % 2))


def merge(parts: list[Columns]) -> Columns:
    """Chain appends that have the same columns, in order, without copying their bytes."""
    if len(parts) == 1:
        return parts[0]
    variable = [_merge_column([part.variable[i] for part in parts]) for i in range(len(parts[0].variable))]
    times = [part.timestamps for part in parts if part.timestamps is not None]
    return Columns(
        sum(part.count for part in parts),
        parts[0].present,
        variable,
        np.concatenate(times) if times else None,
        sum(part.size for part in parts),
    )


def _merge_column(parts: list[Column]) -> Column:
    offsets = [parts[0].offsets]
    pieces = list(parts[0].pieces)
    size = parts[0].size
    for part in parts[1:]:
        offsets.append(part.offsets[1:] + np.int32(size))
        pieces += part.pieces
        size += part.size
    return Column(np.concatenate(offsets), pieces, size)
