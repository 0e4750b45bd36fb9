"""A fold as Arrow batches: every backend, one moment, the columns that were asked for."""

from pathlib import Path

import pyarrow as pa
import pytest

from strandline.errors import FormatError, InvalidInput
from strandline.fold import FoldBatch
from strandline.fold.backends import Backend, open_fold
from strandline.kv import WatchCursor
from strandline.spark.folds.reader import COLUMNS, parse_fold_options, read_fold, revisions_of
from tests.spark.folds.helpers import fill

BACKENDS = list(Backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_backend_is_told_by_what_is_there_and_read_whole(tmp_path: Path, backend: Backend) -> None:
    fill(tmp_path / "f", backend, 2500)
    batches = list(read_fold(str(tmp_path / "f"), rows_per_batch=1000))
    table = pa.Table.from_batches(batches)
    assert max(batch.num_rows for batch in batches) <= 1000
    assert table["key"].to_pylist() == [b"k%05d" % number for number in range(2500)]
    assert table["revision"].to_pylist() == list(range(1, 2501))
    assert table["value"][7].as_py() == b"value 7"


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_fold_is_read_while_somebody_keeps_it_and_as_of_one_moment(tmp_path: Path, backend: Backend) -> None:
    fill(tmp_path / "f", backend, 2500)
    with open_fold(tmp_path / "f", backend) as store:  # type: ignore[attr-defined]
        batches = read_fold(str(tmp_path / "f"), ["value"], rows_per_batch=500)
        values = next(batches).column(0).to_pylist()
        new = [b"new"] * 2500
        keys = [b"k%05d" % number for number in range(2500)]
        store.apply(FoldBatch(keys, new, [bytes(8)] * 2500), WatchCursor((9).to_bytes(8, "big")))
        for batch in batches:
            values += batch.column(0).to_pylist()
    assert values == [b"value %d" % number for number in range(2500)]


def test_a_prefix_and_some_columns_can_be_asked_for(tmp_path: Path) -> None:
    fill(tmp_path / "f", Backend.APPEND_LOG, 100)
    batches = list(read_fold(str(tmp_path / "f"), ["value", "key"], prefix=b"k0001"))
    assert [batch.schema.names for batch in batches] == [["value", "key"]]
    assert batches[0].column("key").to_pylist() == [b"k%05d" % number for number in range(10, 20)]
    with pytest.raises(InvalidInput, match="a fold has no column offset"):
        list(read_fold(str(tmp_path / "f"), ["offset"]))


def test_versions_that_are_no_revisions_have_none() -> None:
    assert revisions_of(pa.array([b"", bytes(7) + b"\x05", b"abc"])).to_pylist() == [None, 5, None]
    assert revisions_of(pa.array([], pa.binary())).to_pylist() == []
    assert COLUMNS.chosen(None).names == ["key", "revision", "version", "value"]


def test_what_is_no_fold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there is no fold at"):
        list(read_fold(str(tmp_path / "missing")))
    (tmp_path / "text").write_text("some text, and no fold")
    with pytest.raises(FormatError, match="is not a fold"):
        list(read_fold(str(tmp_path / "text")))
    with pytest.raises(InvalidInput, match="a fold has no option startingoffset"):
        parse_fold_options({"fold": "x", "startingOffset": "1"})
