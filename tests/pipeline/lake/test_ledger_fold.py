"""The ledger as a process has it: in runs, some of them in files, it is the merge of all rows in bounded memory."""

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import Damaged, StorageRefused
from strandline.pipeline.identity import OvidHash, PolicyHash, TenantId
from strandline.pipeline.lake import ledger_fold, ledger_runs
from strandline.pipeline.lake.columns import LEDGER, TIMES, ledger_rows, ledger_table
from strandline.pipeline.lake.ledger_fold import LedgerFold
from strandline.pipeline.lake.ledger_runs import KEY, RECORD, LedgerRun, Scope, prefixes_of, sorted_keys
from strandline.pipeline.ledger import DoneStatus, LedgerRecord, fold
from tests.effort import examples

TENANT, POLICY = TenantId(b"t" * 32), PolicyHash(b"p" * 32)
KEYS = st.builds(
    lambda head, middle, tail: OvidHash(bytes([head]) * 8 + bytes([middle]) * 20 + bytes([0, 0, 0, tail])),
    st.sampled_from([0, 1, 128, 255]),
    st.sampled_from([0, 255]),
    st.sampled_from([0, 1, 255]),
)
"""Few keys, many of which begin alike, or end with zeros."""


@st.composite
def rows(draw: st.DrawFn) -> LedgerRecord:
    key, status = draw(KEYS), draw(st.sampled_from(DoneStatus))
    number = draw(st.integers(0, 3))
    is_scanned = status >= DoneStatus.SCANNED_PARTIAL
    return LedgerRecord(
        *(TENANT, POLICY, key, key[8] == 255, status, draw(st.integers(0, 2**63 - 1))),
        2 if status is DoneStatus.SCANNED_WITH_FINDINGS else 0,
        *(int(status is DoneStatus.SCANNED_PARTIAL), 0, 0),
        *(draw(st.integers(-(2**63), 2**63 - 1)), number, number, number, number + 1),
        None if is_scanned else draw(st.sampled_from(["HTTP_403", "TIMEOUT"])),
    )


PAGES = st.lists(st.lists(rows(), min_size=1, max_size=6), max_size=12)


def _make_tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few rows make runs, files and ranges."""
    monkeypatch.setattr(ledger_fold, "RUN_ROWS", 4)
    monkeypatch.setattr(ledger_fold, "RUNS_MAX", 3)
    monkeypatch.setattr(ledger_fold, "KEYS_AT_ONCE", 2)
    monkeypatch.setattr(ledger_runs, "MEMORY_ROWS_MAX", 3)
    monkeypatch.setattr(ledger_runs, "MERGE_ROWS", 5)
    monkeypatch.setattr(ledger_runs, "_SAMPLES", 2)


@given(PAGES, st.lists(KEYS, max_size=8))
@examples(150)
def test_rows_are_the_merge_of_all_pages_in_whatever_runs_they_are(
    pages: list[list[LedgerRecord]], asked: list[OvidHash]
) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        _make_tiny(monkeypatch)
        ledger = LedgerFold(TENANT, POLICY, "here")
        for at, page in enumerate(pages):
            ledger.add(ledger_table(page, 100 - at))
            if at % 3 == 0:
                ledger.rows(asked)  # a question between pages makes runs of what is there
        wanted = {row.ovid: row for row in fold(row for page in pages for row in page)}
        found = ledger_rows(ledger.table(), "here")
        assert found == [wanted[key] for key in sorted(wanted)]
        assert ledger.rows(asked) == [wanted.get(key) for key in asked]
        column = pa.array([None, *asked, None], pa.binary(32)).slice(1)
        status, code, run = ledger.columns(column, ["status", "error_code", "run_id"])
        rows = [*(wanted.get(key) for key in asked), None]
        assert status.to_pylist() == [None if row is None else int(row.status) for row in rows]
        assert code.to_pylist() == [None if row is None else row.error_code for row in rows]
        assert run.to_pylist() == [None if row is None else row.run_id for row in rows]
        assert len(ledger) == len(wanted)
        for row in ledger.table().to_pylist():
            mine = [(at, row_) for at, page in enumerate(pages) for row_ in page if row_.ovid == row["ovid"]]
            for status, name in zip(DoneStatus, TIMES, strict=True):
                assert row[name] == min((100 - at for at, one in mine if one.status == status), default=None)


def made_rows(count: int, seed: int) -> Iterator[pa.Table]:
    """Yield pages of random keys, a thousand rows each."""
    random = np.random.default_rng(seed)
    scope = Scope(TENANT, POLICY, "here")
    for _ in range(0, count, 1_000):
        records = np.zeros(1_000, RECORD)
        records["ovid"] = np.frombuffer(random.bytes(32_000), KEY)
        records["status"], records["code"] = int(DoneStatus.SCANNED_CLEAN), -1
        yield scope.table(records)


def peak_bytes(count: int) -> int:
    """Return how many bytes of memory a ledger of so many rows takes at most, in Python and in Arrow."""
    tracemalloc.start()
    began = pa.total_allocated_bytes()
    most = 0
    try:
        ledger = LedgerFold(TENANT, POLICY, "here")
        keys: list[OvidHash] = []
        for page in made_rows(count, 1):
            ledger.add(page)
            keys.append(page["ovid"][0].as_py())
            most = max(most, pa.total_allocated_bytes() - began)
        assert None not in ledger.rows(keys[-50:])
        seen = 0
        for table in ledger.tables():
            seen += len(table)
            most = max(most, pa.total_allocated_bytes() - began)
        assert seen == count
        return tracemalloc.get_traced_memory()[1] + most
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_the_rows_of_a_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_fold, "RUN_ROWS", 4_000)
    monkeypatch.setattr(ledger_runs, "MEMORY_ROWS_MAX", 1_000)
    monkeypatch.setattr(ledger_runs, "MERGE_ROWS", 4_000)
    small, large = peak_bytes(40_000), peak_bytes(160_000)
    assert large < 1.5 * small, f"{small:,} bytes for 40,000 rows, {large:,} for 160,000"


def test_a_run_in_a_file_leaves_no_file_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path}/gone,{tmp_path}")
    monkeypatch.setattr(ledger_runs, "MEMORY_ROWS_MAX", 10)
    records = Scope(TENANT, POLICY, "here").records(next(made_rows(1_000, 2)))
    run = LedgerRun.of([Scope(TENANT, POLICY, "here").folded(records)], len(records))
    assert list(tmp_path.iterdir()) == []
    assert len(run.found(sorted_keys(records["ovid"][:7])[0])[0]) == 7
    run.forget()
    assert len(run.found(sorted_keys(records["ovid"][7:9])[0])[0]) == 2


def test_a_folder_that_takes_no_file_is_an_error_that_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_runs, "spill_folder", lambda: str(tmp_path / "gone"))
    monkeypatch.setattr(ledger_runs, "MEMORY_ROWS_MAX", 10)
    ledger = LedgerFold(TENANT, POLICY, "here")
    ledger.add(next(made_rows(1_000, 3)))
    with pytest.raises(StorageRefused, match="gone"):
        ledger.rows([OvidHash(bytes(32))])


def test_a_key_of_another_length_is_damage() -> None:
    (page,) = made_rows(1_000, 4)
    short = page.set_column(LEDGER.get_field_index("ovid"), LEDGER.field("ovid"), pa.array([b"short"] * 1_000))
    with pytest.raises(Damaged, match="32 bytes"):
        LedgerFold(TENANT, POLICY, "here").add(short)


def test_prefixes_are_in_the_order_of_keys() -> None:
    keys = np.sort(np.frombuffer(np.random.default_rng(5).bytes(32 * 500), KEY))
    assert prefixes_of(keys).tolist() == [int.from_bytes(key.ljust(8, b"\0")[:8], "big") for key in keys.tolist()]
