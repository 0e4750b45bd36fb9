"""A table with key, version and size lists a bucket as a listing does, whatever its form and names."""

import gzip
import os
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from strandline.errors import InvalidInput
from strandline.objects import MemoryObjects, Object, ObjectStore, open_objects
from strandline.scan.sources import InputMissing, InputUnusable, ObjectSource
from strandline.scan.sources.listing_parts import WHOLE, list_part
from strandline.scan.sources.listing_table import ListingTable, TableColumns
from tests.scan.parted_workers import PartThreads
from tests.scan.scan_results import everything, summary
from tests.scan.sources.helpers import contents, left_out, listed, problems
from tests.scan.threaded_workers import made, request_for, scanned

COLUMNS = "key=where,version=tag,size=bytes"
KEYS = [f"logs/{number:02}.txt" for number in range(9)]


@pytest.fixture
def address() -> str:
    return f"memory://{uuid.uuid4().hex}"


@pytest.fixture
def store(address: str) -> ObjectStore:
    """A bucket with secrets in two of its objects."""
    opened = open_objects(address)
    for number, key in enumerate(KEYS):
        opened.put(key, f"alpha_1234567{number}".encode() if number % 4 == 1 else b"nothing")
    return opened


def table_of(store: ObjectStore, begin: str = "") -> pa.Table:
    infos = list(store.list())
    rows = {
        "bytes": [info.size for info in infos],
        "where": [begin + info.key for info in infos],
        "owner": ["x"] * len(infos),
        "tag": [info.etag for info in infos],
    }
    return pa.table(rows)


def as_parquet(table: pa.Table, folder: Path) -> Path:
    pq.write_table(table, folder / "objects.parquet", row_group_size=2)
    return folder / "objects.parquet"


def as_csv(table: pa.Table, folder: Path) -> Path:
    pc.write_csv(table, folder / "objects.csv")
    return folder / "objects.csv"


def as_folder(table: pa.Table, folder: Path) -> Path:
    inner = folder / "listing"
    (inner / "day=1").mkdir(parents=True)
    pq.write_table(table.slice(0, 4), inner / "day=1" / "one.parquet", row_group_size=2)
    sink = pa.BufferOutputStream()
    pc.write_csv(table.slice(4), sink)
    (inner / "two.csv.gz").write_bytes(gzip.compress(sink.getvalue().to_pybytes()))
    (inner / "_SUCCESS").touch()
    (inner / "_old").mkdir()
    (inner / "_old" / "x.parquet").write_bytes(b"no table")
    return inner


def as_delta(table: pa.Table, folder: Path) -> Path:
    """Write a table twice: the files of its first version stay where they are."""
    wrong = table.set_column(1, "where", pa.array(["gone"] * len(table)))
    write_deltalake(folder / "delta", wrong)
    write_deltalake(folder / "delta", table.slice(0, 5), mode="overwrite")
    write_deltalake(folder / "delta", table.slice(5), mode="append")
    return folder / "delta"


FORMS: list[Callable[[pa.Table, Path], Path]] = [as_parquet, as_csv, as_folder, as_delta]


@pytest.mark.parametrize("write", FORMS)
def test_a_table_lists_what_the_bucket_lists(
    write: Callable[[pa.Table, Path], Path], address: str, store: ObjectStore, tmp_path: Path
) -> None:
    table = write(table_of(store), tmp_path)
    source = ObjectSource.at(address, inventory=str(table), columns=COLUMNS)
    plain = ObjectSource.at(address)
    assert sorted(listed(source), key=str) == sorted(listed(plain), key=str)
    assert contents(source) == contents(plain)
    assert source.plain() == plain.plain()
    parts = source.listing_parts(1)
    assert len(parts) == {"as_parquet": 5, "as_csv": 1, "as_folder": 3, "as_delta": 2}[write.__name__]
    rows = [row for part in parts for batch in list_part(source, part, lambda _: None) for row in batch.to_pylist()]
    assert rows == listed(source)


def test_keys_and_versions_of_csv_are_text_whatever_they_look_like(address: str, tmp_path: Path) -> None:
    opened = open_objects(address)
    keys = ["NA", "null", "nan", "0017", "1e5", "true", "2026-11-19"]
    etags = {key: opened.put(key, b"nothing") for key in keys}
    rows = [f"{key},{etags[key]},7" for key in keys]
    (tmp_path / "objects.csv").write_text("\n".join(["where,tag,bytes", *rows]) + "\n")
    source = ObjectSource.at(address, inventory=str(tmp_path / "objects.csv"), columns=COLUMNS)
    assert sorted(listed(source), key=str) == sorted(listed(ObjectSource.at(address)), key=str)


def test_a_table_may_be_in_a_bucket_of_its_own(address: str, store: ObjectStore, tmp_path: Path) -> None:
    where = f"memory://{uuid.uuid4().hex}"
    open_objects(where).put("deep/objects.parquet", as_parquet(table_of(store), tmp_path).read_bytes())
    for table in (f"{where}/deep/objects.parquet", f"{where}/deep", where):
        source = ObjectSource.at(f"{address}/logs", inventory=table, columns=COLUMNS)
        assert sorted(contents(source)) == sorted(map(str.encode, KEYS))


def test_whole_addresses_of_the_bucket_are_keys_and_those_of_others_are_counted(
    address: str, store: ObjectStore, tmp_path: Path
) -> None:
    mine, other = table_of(store, f"{address}/"), table_of(store, "s3://other/")
    table = as_parquet(pa.concat_tables([mine, other]), tmp_path)
    source = ObjectSource.at(address, inventory=str(table), columns=COLUMNS)
    assert sorted(contents(source)) == sorted(map(str.encode, KEYS))
    assert left_out(source) == {"objects of other buckets": len(KEYS)}


@pytest.mark.parametrize("write", [as_parquet, as_delta])
def test_tasks_and_a_driver_come_to_the_results_of_a_plain_listing(
    write: Callable[[pa.Table, Path], Path],
    address: str,
    store: ObjectStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = write(table_of(store), tmp_path)
    source = ObjectSource.at(address, inventory=str(table), columns=COLUMNS)
    plain, alone, parted = (
        request_for(made(str(tmp_path / f"{name}.db")), one)
        for name, one in (("plain", ObjectSource.at(address)), ("alone", source), ("parted", source))
    )
    expected = scanned(plain)
    assert len(expected.findings) == 2
    assert summary(scanned(alone)) == summary(expected)
    monkeypatch.setattr("strandline.scan.workers.LARGE_ITEMS", 1)
    workers = PartThreads()
    assert summary(scanned(parted, workers)) == summary(expected)
    assert dict(workers.calls)["plan_part"] > 1
    assert everything(parted)[0] == everything(plain)[0]
    again = scanned(parted, workers)
    assert again.worked.items == 0, "an object whose ETag the table has is not fetched"


def test_an_object_that_is_gone_is_said(address: str, store: ObjectStore, tmp_path: Path) -> None:
    table = as_csv(table_of(store), tmp_path)
    store.delete(KEYS[3])
    source = ObjectSource.at(address, inventory=str(table), columns=COLUMNS)
    assert problems(source) == {}
    with pytest.raises(Exception, match=r"VANISHED|gone"), source.open() as reader:
        reader.read(KEYS[3].encode(), None)


@pytest.mark.parametrize(
    "columns", ["", "where", "key=where,version=tag", "key=where,version=tag,size=", "key=a,version=b,size=c,owner=d"]
)
def test_columns_that_are_not_three_are_refused(columns: str, address: str) -> None:
    with pytest.raises(InvalidInput, match="does not name the columns"):
        ObjectSource.at(address, inventory="x.parquet", columns=columns)


def test_what_is_no_such_table_is_refused_with_its_name(address: str, store: ObjectStore, tmp_path: Path) -> None:
    good = table_of(store)

    def refused(table: Path | str, error: type[Exception], match: str, columns: str = COLUMNS) -> None:
        with pytest.raises(error, match=match):
            listed(ObjectSource.at(address, inventory=str(table), columns=columns))

    refused(tmp_path / "missing.parquet", InputMissing, "there is no such table")
    refused(f"memory://{uuid.uuid4().hex}/missing", InputMissing, "there is no such table")
    table = as_parquet(good, tmp_path)
    refused(
        table, InputUnusable, "no column 'etag'; its columns are 'bytes', 'where'", "key=where,version=etag,size=bytes"
    )
    refused(table, InputUnusable, "cannot be read as a listing", "key=where,version=tag,size=tag")
    nulls = good.set_column(3, "tag", pa.nulls(len(good), pa.string()))
    refused(as_parquet(nulls, tmp_path), InputUnusable, "column 'tag' has nulls")
    (tmp_path / "cut.parquet").write_bytes(table.read_bytes()[:-9])
    refused(tmp_path / "cut.parquet", InputUnusable, "neither Parquet nor CSV")
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(b"where,tag,bytes\n" * 999)[:-20])
    refused(tmp_path / "cut.csv.gz", InputUnusable, "neither Parquet|cannot be read")
    (tmp_path / "less.csv").write_text("where,tag,bytes\nlogs/00.txt,abc,-7\n")
    refused(tmp_path / "less.csv", InputUnusable, "column 'bytes' has a size below zero")
    (tmp_path / "words.csv").write_text("where,tag,bytes\nlogs/00.txt,abc,many\n")
    refused(tmp_path / "words.csv", InputUnusable, r"words\.csv.*cannot be read|words\.csv.*neither")


def test_parts_of_a_table_that_was_written_anew_do_not_fit(address: str, store: ObjectStore, tmp_path: Path) -> None:
    table = as_parquet(table_of(store), tmp_path)
    source = ObjectSource.at(address, inventory=str(table), columns=COLUMNS)
    parts = source.listing_parts(1)
    assert source.fits(parts)
    pq.write_table(table_of(store).slice(1), table, row_group_size=2)
    assert not source.fits(parts)


class FetchedBytes(MemoryObjects):
    """A bucket that counts the bytes that are read of it."""

    fetched = 0

    def get(self, key: str, *, start: int = 0, stop: int | None = None) -> Object | None:
        found = super().get(key, start=start, stop=stop)
        self.fetched += len(found.body) if found else 0
        return found


def test_a_part_of_a_table_in_a_bucket_reads_neither_other_files_nor_other_columns(tmp_path: Path) -> None:
    tables = FetchedBytes()
    for number in range(8):
        keys = [f"{number}/{row}" for row in range(4)]
        notes = [os.urandom(300_000) for _ in keys]
        rows = pa.table({"where": keys, "tag": ["x"] * 4, "bytes": [9] * 4, "notes": notes})
        pq.write_table(rows, tmp_path / "one.parquet", row_group_size=1)
        tables.put(f"listing/{number}.parquet", (tmp_path / "one.parquet").read_bytes())
    whole = 8 * 4 * 300_000

    def table() -> ListingTable:
        return ListingTable.read("s3://tables/listing", tables, TableColumns.parse(COLUMNS), "s3://bucket")

    parts = WHOLE.cut_at(table().bounds(tables))
    assert tables.fetched < whole / 4
    assert len(parts) == 32
    listed_keys: list[str] = []
    for part in parts:
        tables.fetched = 0
        listed_keys += [info.key for info in table().objects(tables, Counter(), part)]
        assert tables.fetched < whole / 32
    assert listed_keys == [f"{number}/{row}" for number in range(8) for row in range(4)]


def test_a_part_of_a_table_that_was_written_anew_is_refused(address: str, store: ObjectStore, tmp_path: Path) -> None:
    table = as_parquet(table_of(store), tmp_path)
    source = ObjectSource.at(address, inventory=str(table), columns=COLUMNS)
    parts = source.listing_parts(1)
    pq.write_table(table_of(store).slice(4), table, row_group_size=2)
    for part in (parts[0], parts[-1]):
        with pytest.raises(InputUnusable, match="written anew while it was listed"):
            list(list_part(source, part, lambda _: None))


def test_a_file_that_is_written_anew_while_it_is_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "objects.csv").write_text("where,tag,bytes\na,b,1\nb,b,1\n")
    table = ListingTable.read(str(tmp_path / "objects.csv"), None, TableColumns.parse(COLUMNS), "s3://bucket")
    infos = table.objects(None, Counter())
    assert next(infos).key == "a"
    (tmp_path / "objects.csv").write_text("where,tag,bytes\na,b,1\nb,b,1\nc,b,1\n")
    with pytest.raises(InputUnusable, match="written anew while it was listed"):
        list(infos)


def test_parts_of_another_version_of_a_delta_table_do_not_fit(address: str, store: ObjectStore, tmp_path: Path) -> None:
    """A table that is restored changes the log alone: the files of all its versions stay where they are."""
    table = as_delta(table_of(store), tmp_path)
    write_deltalake(table, table_of(store).slice(0, 3), mode="overwrite")
    write_deltalake(table, table_of(store).slice(3), mode="append")
    source = ObjectSource.at(address, inventory=str(table), columns=COLUMNS)
    parts = source.listing_parts(1)
    assert source.fits(parts)
    DeltaTable(table).restore(2)
    assert len(source.listing_parts(1)) == len(parts)
    assert not source.fits(parts)


def test_other_columns_of_csv_may_hold_anything(address: str, store: ObjectStore, tmp_path: Path) -> None:
    (info, *_) = store.list()
    rows = [f'{info.key},{info.etag},{info.size},7,"two\nlines of {number}"' for number in range(60_000)]
    rows.append(f'{info.key},{info.etag},{info.size},a word,""')
    (tmp_path / "objects.csv").write_text("\n".join(["where,tag,bytes,age,note", *rows]) + "\n")
    source = ObjectSource.at(address, inventory=str(tmp_path / "objects.csv"), columns=COLUMNS)
    assert len(listed(source)) == len(rows)


def test_empty_files_of_a_folder_are_no_part_of_a_table(address: str, store: ObjectStore, tmp_path: Path) -> None:
    folder = as_folder(table_of(store), tmp_path)
    (folder / "part-0.csv").touch()
    assert sorted(contents(ObjectSource.at(address, inventory=str(folder), columns=COLUMNS))) == [
        key.encode() for key in KEYS
    ]


def test_a_table_without_columns_says_how_to_name_them(address: str, store: ObjectStore, tmp_path: Path) -> None:
    table = as_parquet(table_of(store), tmp_path)
    with pytest.raises(InputUnusable, match="an S3 Inventory is in a bucket") as raised:
        listed(ObjectSource.at(address, inventory=str(table)))
    assert "--inventory-columns key=NAME" in str(raised.value.hint)
