"""Every cell that holds text is a part of its row group, addressed by file, row and column."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import InvalidInput
from strandline.scan.path_globs import parse_globs
from strandline.scan.sources import (
    InputMissing,
    InputUnusable,
    ItemProblem,
    Part,
    Problem,
    TableSource,
    parquet,
)
from strandline.scan.sources.cells import Leaf, cells, leaves
from strandline.scan.sources.listing_parts import ListingPart
from strandline.scan.sources.stat_cache import RACY_MARGIN_NS
from strandline.scan.sources.tables import format_locator, parse_locator
from tests.scan.sources.helpers import left_out, listed, locators, problems


def table_of(rows: int, **columns: Any) -> pa.Table:  # noqa: ANN401 - whatever Arrow takes
    return pa.table({"id": pa.array(range(100, 100 + rows)), **columns})


def put(path: Path, table: pa.Table, **options: Any) -> None:  # noqa: ANN401 - whatever the writer takes
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, **options)


def parts(source: TableSource) -> list[Part]:
    with source.open() as reader:
        return [
            part
            for row in listed(source)
            if row["problem"] is None
            for part in reader.read(row["locator"], row["extra"]).parts
        ]


def versions(source: TableSource) -> list[bytes]:
    with source.open() as reader:
        return [reader.read(locator, None).version for locator in locators(source)]


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    path = tmp_path / "orders.parquet"
    put(path, table_of(5, notes=["a", None, "", "d", "e"], blob=[b"\xff", b"1", b"2", b"3", None]), row_group_size=2)
    return path


def test_cells_of_text_are_parts_with_row_and_column(orders: Path) -> None:
    found = [(part.data, part.row, part.field, part.path) for part in parts(TableSource.at(f"parquet:{orders}"))]
    assert found == [
        (b"a", "0", "notes", "orders.parquet"),
        (b"\xff", "0", "blob", "orders.parquet"),
        (b"1", "1", "blob", "orders.parquet"),
        (b"d", "3", "notes", "orders.parquet"),
        (b"2", "2", "blob", "orders.parquet"),
        (b"3", "3", "blob", "orders.parquet"),
        (b"e", "4", "notes", "orders.parquet"),
    ]


def test_a_row_group_is_an_item(orders: Path) -> None:
    rows = listed(TableSource.at(f"parquet:{orders}"))
    assert [parse_locator(row["locator"]) for row in rows] == [(b"orders.parquet", number) for number in range(3)]
    assert all(row["version"] is None and row["stat"] and row["size"] > 0 for row in rows)


def test_rows_are_named_by_the_key(orders: Path) -> None:
    found = parts(TableSource.at(f"parquet:{orders}", key="id"))
    assert {(part.data, part.row) for part in found if part.field == "notes"} == {
        (b"a", "100"),
        (b"d", "103"),
        (b"e", "104"),
    }


@pytest.mark.parametrize(
    ("keys", "shown"),
    [
        (["order-17", "18"], ["order-17", "18"]),
        (["123e4567-e89b-12d3-a456-426614174000", None], ["123e4567-e89b-12d3-a456-426614174000", "1"]),
        (["AKIA" + "Q" * 16, "correct horse battery staple"], ["0", "1"]),
        ([1.5, 2.5], ["0", "1"]),
    ],
)
def test_a_key_that_might_be_a_secret_is_not_shown(tmp_path: Path, keys: list[Any], shown: list[str]) -> None:
    put(tmp_path / "t.parquet", pa.table({"k": keys, "text": ["x", "y"]}))
    found = parts(TableSource.at(f"parquet:{tmp_path}", key="k", columns=["text"]))
    assert [part.row for part in found] == shown


def test_only_the_columns_asked_for_are_looked_at(orders: Path) -> None:
    source = TableSource.at(f"parquet:{orders}", columns=["notes"])
    assert {part.data for part in parts(source)} == {b"a", b"d", b"e"}
    whole = {part.address for part in parts(TableSource.at(f"parquet:{orders}")) if part.field == "notes"}
    assert {part.address for part in parts(source)} == whole
    assert versions(source) != versions(TableSource.at(f"parquet:{orders}"))


def test_a_leaf_of_a_column_is_another_choice_than_the_column(tmp_path: Path) -> None:
    put(tmp_path / "t.parquet", pa.table({"c": [{"s": "x", "t": "y"}]}))
    whole, leaf = (TableSource.at(f"parquet:{tmp_path}", columns=[name]) for name in ("c", "c.s"))
    assert [part.data for part in parts(whole)] == [b"x", b"y"]
    assert [part.data for part in parts(leaf)] == [b"x"]
    assert versions(whole) != versions(leaf)


@pytest.mark.parametrize("columns", [["missing"], ["id"], ["notes", "typo"]])
def test_a_column_that_no_file_has_is_an_error_with_a_hint(orders: Path, columns: list[str]) -> None:
    with pytest.raises(InputUnusable, match=columns[-1]) as refused:
        listed(TableSource.at(f"parquet:{orders}", columns=columns))
    assert refused.value.hint


def test_a_column_that_only_some_files_have_is_no_error(tmp_path: Path) -> None:
    put(tmp_path / "a.parquet", pa.table({"old": ["x"]}))
    put(tmp_path / "b.parquet", pa.table({"old": ["y"], "new": ["z"]}))
    assert [part.data for part in parts(TableSource.at(f"parquet:{tmp_path}", columns=["new"]))] == [b"z"]


def test_a_key_that_is_missing_is_an_error_with_a_hint(orders: Path) -> None:
    with pytest.raises(InputUnusable, match="no column nope") as refused:
        listed(TableSource.at(f"parquet:{orders}", key="nope"))
    assert "id" in (refused.value.hint or "")


def test_folders_of_partitions_are_walked_and_what_is_no_data_is_counted(tmp_path: Path) -> None:
    one = pa.table({"text": ["x"]})
    for name in ("day=2026-01-31/b.parquet", "day=2026-01-30/a.parquet", "_delta_log/x.parquet", ".hidden.parquet"):
        put(tmp_path / name, one)
    put(tmp_path / "without-ending", one)
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / "README").write_text("no table")
    put(tmp_path / "empty.parquet", one.slice(0, 0))
    source = TableSource.at(f"parquet:{tmp_path}")
    paths = [parse_locator(locator)[0] for locator in locators(source)]
    assert paths == [b"day=2026-01-30/a.parquet", b"day=2026-01-31/b.parquet", b"without-ending"]
    assert left_out(source) == {"not data": 3, "not parquet": 1, "without rows": 1}


def test_excluded_files_are_counted(tmp_path: Path) -> None:
    put(tmp_path / "a.parquet", pa.table({"text": ["x"]}))
    put(tmp_path / "b.parquet", pa.table({"text": ["x"]}))
    source = TableSource.at(f"parquet:{tmp_path}", excludes=parse_globs("a.*"))
    assert [parse_locator(locator)[0] for locator in locators(source)] == [b"b.parquet"]
    assert left_out(source) == {"excluded": 1}


# Nested and unusual columns.


@pytest.mark.parametrize(
    ("column", "fields"),
    [
        (pa.array(["x", None], pa.large_string()), {("col", "0"): b"x"}),
        (pa.array([b"abcd", b"efgh"], pa.binary(4)), {("col", "0"): b"abcd", ("col", "1"): b"efgh"}),
        (pa.array(["x", "x"]).dictionary_encode(), {("col", "0"): b"x", ("col", "1"): b"x"}),
        (pa.array(["x", None, "x"]).dictionary_encode()[1:], {("col", "1"): b"x"}),
        (pa.array([["a", "b"], None]), {("col", "0"): b"a\nb"}),
        (pa.array([[], ["a", None, "c"]]), {("col", "1"): b"a\n\nc"}),
        (pa.array([["a", "b"], None], pa.list_(pa.string(), 2)), {("col", "0"): b"a\nb"}),
        (pa.array([{"s": "x", "n": 1, "deep": {"t": "y"}}, None]), {("col.s", "0"): b"x", ("col.deep.t", "0"): b"y"}),
        (pa.array([[{"s": "x"}, {"s": "y"}], []]), {("col.s", "0"): b"x\ny"}),
        (pa.array([[["a"], ["b", "c"]], [["d"]]]), {("col", "0"): b"a\nb\nc", ("col", "1"): b"d"}),
        (
            pa.array([[("k", "v"), ("l", "w")], None], pa.map_(pa.string(), pa.string())),
            {("col.key", "0"): b"k\nl", ("col.value", "0"): b"v\nw"},
        ),
        (pa.array([1, 2]), {}),
        (pa.array([None, None]), {}),
    ],
)
def test_text_is_found_wherever_it_is_nested(tmp_path: Path, column: pa.Array, fields: dict[Any, bytes]) -> None:
    put(tmp_path / "t.parquet", pa.table({"col": column}))
    found = parts(TableSource.at(f"parquet:{tmp_path}"))
    assert {(part.field, part.row): part.data for part in found} == fields
    assert len({part.address for part in found}) == len(found)


TEXT = st.text(max_size=3) | st.none()
NESTED = st.lists(
    st.fixed_dictionaries({"s": TEXT, "l": st.lists(TEXT, max_size=3) | st.none()}) | st.none(), max_size=6
)


@given(NESTED, st.integers(1, 3), st.integers(0, 3))
def test_nested_text_comes_out_row_by_row(rows: list[Any], group: int, begin: int) -> None:
    kind = pa.struct([("s", pa.string()), ("l", pa.list_(pa.string()))])
    array = pa.array(rows, kind)[begin:]
    assert leaves(pa.schema([("c", kind)])) == [Leaf("c", ("s",)), Leaf("c", ("l",))]
    wanted = [None if row is None or row["s"] is None else row["s"].encode() for row in rows[begin:]]
    assert list(cells(array, ("s",))) == wanted
    joined = ["" if row is None else "\n".join(one or "" for one in row["l"] or []) for row in rows[begin:]]
    assert [(one or b"").decode() for one in cells(array, ("l",))] == joined
    assert group


def test_a_name_with_a_dot_is_one_column(tmp_path: Path) -> None:
    put(tmp_path / "t.parquet", pa.table({"a.b": ["x"], "a": ["y"]}))
    found = parts(TableSource.at(f"parquet:{tmp_path}"))
    assert {(part.field, part.data) for part in found} == {("a.b", b"x"), ("a", b"y")}


def test_many_rows_come_in_batches_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "_BATCH_BYTES", 1_000)
    monkeypatch.setattr(parquet, "_NESTED_ROWS", 7)
    count = 1_000
    put(
        tmp_path / "t.parquet",
        table_of(count, text=[f"t{n}" for n in range(count)], tags=[[f"l{n}"] for n in range(count)]),
        row_group_size=400,
    )
    found = parts(TableSource.at(f"parquet:{tmp_path}", key="id"))
    assert {(part.data, part.row) for part in found} == {
        (f"{letter}{n}".encode(), str(n + 100)) for n in range(count) for letter in "tl"
    }


def test_a_value_that_fills_all_rows_is_in_memory_once(tmp_path: Path) -> None:
    big = "x" * 1_000_000
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 2_000), [big])
    put(tmp_path / "t.parquet", pa.table({"text": column}), store_schema=False)
    before = pa.total_allocated_bytes()
    largest = 0
    with TableSource.at(f"parquet:{tmp_path}").open() as reader:
        ids = set()
        for part in reader.read(format_locator(b"t.parquet", 0), None).parts:
            ids.add(id(part.data))
            largest = max(largest, pa.total_allocated_bytes() - before)
    assert largest < 100_000_000
    assert len(ids) < 100


def test_a_cell_that_is_too_large_is_counted_as_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.scan.sources.files.SIZE_MAX", 10)
    put(tmp_path / "t.parquet", pa.table({"text": ["small", "x" * 11]}))
    source = TableSource.at(f"parquet:{tmp_path}")
    object.__setattr__(source.files, "size_max", 10)
    assert [(part.data, part.lost) for part in parts(source)] == [(b"small", 0), (b"", 1)]


def test_a_row_group_with_more_cells_than_addresses_is_a_row_with_a_problem(
    orders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.scan.sources.tables.ADDRESS_MAX", 3)
    source = TableSource.at(f"parquet:{orders}")
    assert list(problems(source).values()) == [Problem.TOO_LARGE] * 2
    assert [part.data for part in parts(source)] == [b"e"]


# Versions.


def test_a_changed_row_group_has_another_version(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    source = TableSource.at(f"parquet:{tmp_path}")
    seen: set[bytes] = set()
    for text in ("one", "two", "six"):
        put(path, pa.table({"text": [text], "n": [1]}))
        seen.add(*versions(source))
    assert len(seen) == 3


def test_the_same_file_under_another_name_has_the_same_versions(orders: Path, tmp_path: Path) -> None:
    (tmp_path / "copy.parquet").write_bytes(orders.read_bytes())
    found = versions(TableSource.at(f"parquet:{tmp_path}"))
    assert found[:3] == found[3:]
    assert len(set(found)) == 3


def test_the_file_s_stat_data_vouch_for_its_row_groups(orders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh_ns = orders.stat().st_ctime_ns + RACY_MARGIN_NS
    source = TableSource.at(f"parquet:{orders}")
    stats = [row["stat"] for row in listed(source)]
    for looked_at_ns, vouched in ((fresh_ns, [None] * 3), (fresh_ns + 1, stats)):
        monkeypatch.setattr("strandline.scan.sources.parquet.time.time_ns", lambda now=looked_at_ns: now)
        with source.open() as reader:
            assert [reader.read(locator, None).stat for locator in locators(source)] == vouched


def test_other_columns_are_another_input(orders: Path) -> None:
    """What is known of files by their stat data is kept for each set of inputs: the columns are part of a version."""
    source, other = TableSource.at(f"parquet:{orders}"), TableSource.at(f"parquet:{orders}", columns=["notes"])
    assert source.plain() != other.plain()


# Broken and unreadable files.


def corrupt(path: Path, begin: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(begin)
        file.write(data)


@pytest.mark.parametrize("data", [b"", b"PAR1", b"not a table at all", b"PAR1" + bytes(100) + b"PAR1", b"PARE" * 10])
def test_a_file_that_is_no_table_is_a_row_with_a_problem(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "bad.parquet").write_bytes(data)
    put(tmp_path / "good.parquet", pa.table({"text": ["x"]}))
    source = TableSource.at(f"parquet:{tmp_path}")
    assert problems(source) == {format_locator(b"bad.parquet", 0): Problem.BROKEN_TABLE}
    assert [part.data for part in parts(source)] == [b"x"]


def test_one_file_that_is_named_is_a_table_or_a_problem(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("a,b")
    put(tmp_path / "_hidden", pa.table({"text": ["x"]}))
    assert list(problems(TableSource.at(f"parquet:{tmp_path}/data.csv")).values()) == [Problem.BROKEN_TABLE]
    assert [part.data for part in parts(TableSource.at(f"parquet:{tmp_path}/_hidden"))] == [b"x"]


def test_a_folder_without_a_table_is_an_error_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "README").write_text("no table")
    with pytest.raises(InputUnusable, match="no Parquet file") as refused:
        listed(TableSource.at(f"parquet:{tmp_path}"))
    assert refused.value.hint


def test_damaged_pages_are_a_problem_of_their_row_group_alone(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    table = pa.table({"text": [f"value {n:4}" for n in range(2_000)]})
    plain = {"use_dictionary": False, "compression": "none"}  # so that only a checksum can tell
    put(path, table, row_group_size=1_000, write_page_checksum=True, **plain)
    chunk = pq.read_metadata(path).row_group(1).column(0)
    data = path.read_bytes()
    corrupt(path, data.index(b"value 1500"), b"VALUE")
    assert chunk.data_page_offset < data.index(b"value 1500")
    source = TableSource.at(f"parquet:{tmp_path}")
    with source.open() as reader:
        assert len(list(reader.read(format_locator(b"t.parquet", 0), None).parts)) == 1_000
        with pytest.raises(ItemProblem) as refused:
            list(reader.read(format_locator(b"t.parquet", 1), None).parts)
    assert refused.value.code is Problem.BROKEN_TABLE


def test_a_file_cut_short_is_a_problem(orders: Path) -> None:
    data = orders.read_bytes()
    source = TableSource.at(f"parquet:{orders}")
    for length in range(0, len(data), 97):
        orders.write_bytes(data[:length])
        assert set(problems(source).values()) == {Problem.BROKEN_TABLE}


def test_a_file_that_lost_its_middle_is_a_problem(orders: Path) -> None:
    source = TableSource.at(f"parquet:{orders}")
    data = orders.read_bytes()
    footer = int.from_bytes(data[-8:-4], "little") + 8
    orders.write_bytes(b"PAR1" + data[-footer:])
    with source.open() as reader, pytest.raises(ItemProblem) as refused:
        list(reader.read(format_locator(b"orders.parquet", 2), None).parts)
    assert refused.value.code is Problem.BROKEN_TABLE


def test_a_file_that_vanished_or_shrank_is_a_failure(orders: Path) -> None:
    source = TableSource.at(f"parquet:{orders}")
    with source.open() as reader:
        put(orders, pa.table({"text": ["x"]}))
        with pytest.raises(ItemProblem) as shrank:
            reader.read(format_locator(b"orders.parquet", 2), None)
        orders.unlink()
        with pytest.raises(ItemProblem) as vanished:
            reader.read(format_locator(b"orders.parquet", 0), None)
    assert {shrank.value.code, vanished.value.code} == {Problem.VANISHED}


def test_a_file_that_changes_before_or_while_its_cells_are_read_fails_for_now(orders: Path) -> None:
    source = TableSource.at(f"parquet:{orders}")
    with source.open() as reader:
        content = reader.read(format_locator(b"orders.parquet", 0), None)
        orders.touch()
        with pytest.raises(ItemProblem) as before:
            list(content.parts)
        cells_of = iter(reader.read(format_locator(b"orders.parquet", 0), None).parts)
        next(cells_of)
        orders.touch()
        with pytest.raises(ItemProblem) as meanwhile:
            list(cells_of)
    assert {before.value.code, meanwhile.value.code} == {Problem.CHANGED_WHILE_READ}


def test_links_and_pipes_in_a_table_are_rows_with_a_problem(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.parquet")
    (tmp_path / "link.parquet").symlink_to("elsewhere")
    source = TableSource.at(f"parquet:{tmp_path}")
    assert problems(source) == {
        format_locator(b"link.parquet", 0): Problem.SYMLINK,
        format_locator(b"pipe.parquet", 0): Problem.NOT_A_FILE,
    }


def test_nothing_stays_open(orders: Path) -> None:
    source = TableSource.at(f"parquet:{orders}")
    parts(source)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - counted as it is
    with source.open() as reader:
        unread = [reader.read(locator, None) for locator in locators(source)]
        begun = iter(reader.read(format_locator(b"orders.parquet", 0), None).parts)
        next(begun)
        assert isinstance(begun, Iterator)
        del begun
    assert unread
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208 - the same


@pytest.mark.parametrize("address", ["/data/orders", "csv:/data", ""])
def test_an_address_of_another_form_is_refused_with_a_hint(address: str) -> None:
    with pytest.raises(InvalidInput, match="not the address of a table") as refused:
        TableSource.at(address)
    assert refused.value.hint


def test_a_table_that_is_not_there_is_an_error_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(InputMissing):
        TableSource.at(f"parquet:{tmp_path}/missing")
    with pytest.raises(InvalidInput, match="choice of columns is empty"):
        TableSource.at(f"parquet:{tmp_path}", columns=[])


@given(st.binary().filter(lambda path: b"\0" not in path), st.integers(0, 2**32 - 1))
def test_locators_are_read_back(path: bytes, group: int) -> None:
    assert parse_locator(format_locator(path, group)) == (path, group)


def test_parts_of_a_table_in_which_nothing_would_be_scanned_are_an_error(tmp_path: Path) -> None:
    """The first part finds it out for all of them; where another part has the column, it is none."""
    table = tmp_path / "table"
    (table / "a").mkdir(parents=True)
    (table / "notes").write_text("not a table")
    source = TableSource.at(f"parquet:{table}", columns=["text"])
    first, last = ListingPart(b"", b"b/"), ListingPart(b"b/", None)

    def rows(part: ListingPart) -> int:
        return sum(len(batch) for batch in source.list_part(part, lambda _: None))

    with pytest.raises(InputUnusable, match="no Parquet file"):
        rows(first)
    pq.write_table(pa.table({"other": ["x"]}), table / "a" / "1.parquet")
    with pytest.raises(InputUnusable, match="column text"):
        rows(first)
    (table / "b").mkdir()
    pq.write_table(pa.table({"text": ["x"]}), table / "b" / "1.parquet")
    assert (rows(first), rows(last)) == (1, 1)
