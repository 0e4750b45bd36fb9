"""Text in Arrow columns: which leaves of a schema hold any, and the bytes of each cell.

    string, binary (large, view, fixed), dictionary of them     a leaf: `notes`
    struct                                                      a leaf per field: `address.street`
    list, map                                                   their values, one on a line each: `tags`, `labels.value`
    extension types                                             their storage type

Invariants: pure; a leaf has one value for each row, null for an empty cell; numbers and times hold no text and
are no leaves. Leaves stand in the order of the schema.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_TEXTS = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
)
_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)


class Leaf(NamedTuple):
    """A leaf with text: its column, and its path within the column."""

    column: str
    path: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name for messages and reports."""
        return ".".join((self.column, *self.path))


def leaves(schema: pa.Schema) -> list[Leaf]:
    """Return all text in a schema."""
    return [Leaf(field.name, path) for field in schema for path in _paths(field.type)]


def _paths(kind: pa.DataType) -> Iterator[tuple[str, ...]]:
    if isinstance(kind, pa.BaseExtensionType):
        yield from _paths(kind.storage_type)
    elif any(is_text(kind) for is_text in _TEXTS):
        yield ()
    elif pa.types.is_dictionary(kind) or any(is_list(kind) for is_list in _LISTS):
        yield from _paths(kind.value_type)
    elif pa.types.is_map(kind):
        yield from (("key", *path) for path in _paths(kind.key_type))
        yield from (("value", *path) for path in _paths(kind.item_type))
    elif pa.types.is_struct(kind):
        yield from ((field.name, *path) for field in kind for path in _paths(field.type))


def is_nested(schema: pa.Schema, leaf: Leaf) -> bool:
    """Return whether a leaf is nested in lists or structs."""
    return bool(pa.types.is_nested(schema.types[schema.names.index(leaf.column)]))


def texts(array: pa.Array, path: tuple[str, ...]) -> pa.Array:
    """Return a leaf's bytes, one value for each row of the column."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return texts(array.storage, path)
    if pa.types.is_dictionary(kind):
        return texts(array.dictionary_decode(), path)
    if pa.types.is_struct(kind):
        place = [field.name for field in kind].index(path[0])
        return texts(pc.struct_field(array, [place]), path[1:])
    if pa.types.is_map(kind):
        values = array.keys if path[0] == "key" else array.items
        return _joined(array.offsets, texts(values, path[1:]), array)
    if any(is_list(kind) for is_list in _LISTS):
        return _joined(None, texts(pc.list_flatten(array), path), array)
    return array.cast(pa.large_binary())


def cells(array: pa.Array, path: tuple[str, ...]) -> Iterator[bytes | None]:
    """Yield a leaf's bytes row by row; values of a dictionary are not copied, however often they occur."""
    if pa.types.is_dictionary(array.type) and not path and any(is_text(array.type.value_type) for is_text in _TEXTS):
        values = [*array.dictionary.cast(pa.large_binary()).to_pylist(), None]
        return (values[place] for place in pc.fill_null(array.indices, len(values) - 1).to_pylist())
    found: Iterator[bytes | None] = iter(texts(array, path).to_pylist())
    return found


def _joined(offsets: pa.Array | None, values: pa.Array, lists: pa.Array) -> pa.Array:
    """Return the values of each list on lines of their own."""
    if offsets is None:
        lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int64())
    filled = pc.fill_null(values, b"")
    return pc.binary_join(
        pa.LargeListArray.from_arrays(offsets.cast(pa.int64()), filled), pa.scalar(b"\n", pa.large_binary())
    )
