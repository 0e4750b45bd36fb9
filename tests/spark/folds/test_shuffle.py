"""The last write of each key by columns, over cuts and parts, is what one write after the other leaves."""

from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from strandline.spark.folds import shuffle
from strandline.spark.folds.shuffle import ROWS, chunks, cut_numbers, last_writes, puts_of, read_cut, write_cuts

CHANGES = st.lists(st.tuples(st.binary(min_size=1, max_size=12), st.integers(0, 2), st.binary(max_size=4)), max_size=80)


def table(changes: list[tuple[bytes, int, bytes]], first: int = 1) -> pa.Table:
    keys, kinds, values = ([change[column] for change in changes] for column in range(3))
    never = [0] * len(changes)
    return pa.table([keys, list(range(first, first + len(changes))), kinds, values, never], schema=ROWS)


def folded(changes: list[tuple[bytes, int, bytes]]) -> dict[bytes, tuple[int, bytes]]:
    state: dict[bytes, tuple[int, bytes]] = {}
    for revision, (key, kind, value) in enumerate(changes, 1):
        state.pop(key, None)
        if not kind:
            state[key] = (revision, value)
    return state


@given(CHANGES)
def test_the_last_row_of_each_key_is_kept(changes: list[tuple[bytes, int, bytes]]) -> None:
    left = puts_of(last_writes(table(changes)))
    rows = zip(left["key"].to_pylist(), left["revision"].to_pylist(), left["value"].to_pylist(), strict=True)
    assert {key: (revision, value) for key, revision, value in rows} == folded(changes)
    assert left["revision"].to_pylist() == sorted(left["revision"].to_pylist())


@given(CHANGES, st.integers(1, 5), st.integers(1, 4))
def test_parts_and_cuts_change_nothing(
    tmp_path_factory: object, changes: list[tuple[bytes, int, bytes]], cuts: int, parts: int
) -> None:
    folder = Path(str(tmp_path_factory.mktemp("cuts")))  # type: ignore[attr-defined]
    bounds = [len(changes) * part // parts for part in range(parts + 1)]
    for part in range(parts):
        begin, end = bounds[part], bounds[part + 1]
        whole = table(changes[begin:end], begin + 1)
        pieces = [whole.slice(at, 7) for at in range(0, whole.num_rows, 7)]
        assert write_cuts(folder, part, pieces, cuts) == end - begin
    found: dict[bytes, tuple[int, bytes]] = {}
    for cut in range(cuts):
        left = puts_of(read_cut(folder, range(parts), cut))
        rows = list(zip(left["key"].to_pylist(), left["revision"].to_pylist(), left["value"].to_pylist(), strict=True))
        assert not {key for key, _, _ in rows} & found.keys(), "a key is in one cut"
        found |= {key: (revision, value) for key, revision, value in rows}
    assert found == folded(changes)


def test_keys_are_spread_over_cuts() -> None:
    keys = pa.array([b"orders.%07d.total" % number for number in range(10_000)])
    counts = np.bincount(cut_numbers(keys, 8).astype(int), minlength=8)
    assert counts.min() > 1000
    assert (cut_numbers(keys.slice(17, 5), 8) == cut_numbers(keys, 8)[17:22]).all()


def test_small_batches_are_joined_up_to_a_size() -> None:
    batch = pa.RecordBatch.from_arrays(table([(b"k", 0, b"x" * 1_000_000)]).to_batches()[0].columns, schema=ROWS)
    sizes = [chunk.num_rows for chunk in chunks([batch] * 70)]
    assert sum(sizes) == 70
    assert sizes[0] == -(-shuffle.CHUNK_BYTES // batch.nbytes)
