"""Stores that stay open from part to part: the same ones for a lake, unless an error or another lake came between."""

import shutil
from pathlib import Path

import pytest

from strandline.objects import LocalObjects
from strandline.scan.parted.kept_stores import kept_stores
from strandline.scan.sources import FileSource
from tests.scan.parted_workers import PartThreads
from tests.scan.things import Things
from tests.scan.threaded_workers import TENANT, made, request_for, scanned


def test_the_stores_of_a_lake_are_kept_until_an_error(things: Things, tmp_path: Path) -> None:
    request = request_for(made(f"file://{tmp_path}/lake"), things)
    with kept_stores(request) as first:
        assert first.state.multi_get(TENANT, [b"none"]) == [None]
    with kept_stores(request) as again:
        assert again is first
    with pytest.raises(KeyError), kept_stores(request):
        raise KeyError
    with kept_stores(request) as later:
        assert later is not first
    with kept_stores(request) as again, kept_stores(request) as another:
        assert again is later
        assert another is not later, "one call at a time uses them"


def test_a_lake_that_was_made_anew_is_opened_anew(things: Things, tmp_path: Path) -> None:
    request = request_for(made(f"file://{tmp_path}/lake"), things)
    with kept_stores(request) as first:
        pass
    shutil.rmtree(tmp_path / "lake")
    made(request.address)
    with kept_stores(request) as later:
        assert later is not first
        assert later.state.multi_get(TENANT, [b"none"]) == [None]


def test_a_database_is_opened_for_each_part(things: Things, tmp_path: Path) -> None:
    request = request_for(made(str(tmp_path / "pipeline.db")), things)
    with kept_stores(request) as first:
        pass
    with kept_stores(request) as later:
        assert later is not first


def test_a_large_scan_reads_each_page_of_the_ledger_a_few_times_and_not_for_each_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.scan.workers.LARGE_ITEMS", 1)
    for number in range(40):
        (tmp_path / f"corpus/folder-{number:02}").mkdir(parents=True)
        (tmp_path / f"corpus/folder-{number:02}/file").write_text(f"text {number}")
    request = request_for(made(f"file://{tmp_path}/lake"), FileSource.at(str(tmp_path / "corpus")))
    reads: list[str] = []
    get = LocalObjects.get

    def counted(self: LocalObjects, key: str, **bounds: int) -> object:
        reads.append(key)
        return get(self, key, **bounds)

    monkeypatch.setattr(LocalObjects, "get", counted)
    workers = PartThreads()
    outcome = scanned(request, workers)
    settled = sum(tasks for name, tasks in workers.calls if name == "settle_part")
    pages = [key for key in reads if key.startswith("pages/ledger/")]
    assert outcome.items == 40
    assert settled > 4
    assert len(pages) <= 3 * len(set(pages))
