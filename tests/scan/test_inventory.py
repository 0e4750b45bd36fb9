"""Chunks of inventories: what is left out comes back, and chunks of older versions are read as they are."""

import pyarrow as pa
import pytest

from strandline.pipeline.identity import PolicyHash, connector_instance_id, stable_item_id
from strandline.pipeline.state import MemoryState, Put
from strandline.scan.arrow_chunks import format_table
from strandline.scan.errors import ManifestBroken
from strandline.scan.inventory import (
    ITEMS,
    Inventory,
    SourceFacts,
    find_inventory,
    format_items,
    keep_head,
    parse_items,
    write_inventory,
)
from tests.scan.threaded_workers import TENANT

INPUTS = b"i" * 32
INSTANCES = [connector_instance_id(b"one"), connector_instance_id(b"other")]
SOURCES = tuple(SourceFacts("fs", f"source {at}", instance.hex()) for at, instance in enumerate(INSTANCES))
HEAD = Inventory(INPUTS.hex(), PolicyHash(b"p" * 32), 1, None, SOURCES, 0, 0, 0)
FIRST = ITEMS.set(0, pa.field("item", pa.binary(32), nullable=False))
"""The columns that chunks of the first version have."""


def items() -> pa.Table:
    """Return items of two sources; the path of one is not its locator."""
    sources, locators = [0, 1, 0], [b"a", b"a", b"b\xff"]
    columns = {
        "item": [stable_item_id("fs", INSTANCES[at], name) for at, name in zip(sources, locators, strict=True)],
        "path": [b"a", b"shown", b"b\xff"],
        "source": sources,
        "locator": locators,
        "weak": [False] * 3,
    }
    arrays = [pa.array(columns.get(one.name, [None] * 3), one.type) for one in ITEMS]
    return pa.Table.from_arrays(arrays, schema=ITEMS)


def test_what_follows_from_the_rest_is_not_stored_and_comes_back() -> None:
    state = MemoryState()
    head = write_inventory(state, TENANT, HEAD, items().to_batches())
    (stored,) = state.multi_get(TENANT, head.chunk_keys())
    assert stored is not None
    with pa.ipc.open_stream(stored) as reader:
        written = reader.read_all()
    assert "item" not in written.schema.names
    assert written["path"].to_pylist() == [None, b"shown", None]
    assert pa.concat_tables(head.items(state, TENANT)) == items()
    planned = parse_items(stored)
    assert planned["item"].null_count == 3, "a plan derives nothing"
    assert planned.drop_columns("item") == items().drop_columns("item")


def test_chunks_of_the_first_version_are_read_as_they_are() -> None:
    state = MemoryState()
    head = write_inventory(state, TENANT, HEAD, items().to_batches())
    state.apply_batch(TENANT, [Put(key, format_table(items().cast(FIRST))) for key in head.chunk_keys()])
    keep_head(state, TENANT, head)
    known = find_inventory(state, TENANT, INPUTS)
    assert known is not None
    assert pa.concat_tables(known.items(state, TENANT)) == items()


def test_chunks_of_a_later_version_are_refused() -> None:
    later = items().append_column("more", pa.array([1, 2, 3]))
    with pytest.raises(ManifestBroken, match="other columns"):
        parse_items(format_table(later))
    assert parse_items(format_items(items().slice(0, 0))) == ITEMS.empty_table()
