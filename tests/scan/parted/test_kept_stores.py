"""Stores that stay open from part to part: the same ones for a lake, unless an error or another lake came between."""

import shutil
from pathlib import Path

import pytest

from strandline.objects import LocalObjects, StoreRefused
from strandline.pipeline.lake import LakeDatabase
from strandline.pipeline.sql.migrations import SchemaStatus
from strandline.pipeline.stores import Stores
from strandline.scan.parted.kept_stores import close_kept, kept_stores
from strandline.scan.sources import FileSource
from tests.scan.parted_workers import PartThreads
from tests.scan.things import Things
from tests.scan.threaded_workers import TENANT, made, request_for, scanned

PLAN = 1


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[Stores]:
    """Stores that were closed, in order."""
    done: list[Stores] = []
    close = Stores.close

    def noted(self: Stores) -> None:
        done.append(self)
        close(self)

    monkeypatch.setattr(Stores, "close", noted)
    return done


def refuse(times: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let looks at a lake be refused, as the given answers say, and then no more."""
    status = LakeDatabase.status

    def look(self: LakeDatabase) -> SchemaStatus:
        if times and times.pop(0):
            raise StoreRefused(self.describe(), "the token has expired")
        return status(self)

    monkeypatch.setattr(LakeDatabase, "status", look)


def test_the_stores_of_a_lake_are_kept_until_an_error(things: Things, tmp_path: Path) -> None:
    request = request_for(made(f"file://{tmp_path}/lake"), things)
    with kept_stores(request, PLAN) as first:
        assert first.state.multi_get(TENANT, [b"none"]) == [None]
    with kept_stores(request, PLAN) as again:
        assert again is first
    with pytest.raises(KeyError), kept_stores(request, PLAN):
        raise KeyError
    with kept_stores(request, PLAN) as later:
        assert later is not first
    with kept_stores(request, PLAN) as again, kept_stores(request, PLAN) as another:
        assert again is later
        assert another is not later, "one call at a time uses them"


def test_a_lake_that_was_made_anew_is_opened_anew(things: Things, tmp_path: Path) -> None:
    request = request_for(made(f"file://{tmp_path}/lake"), things)
    with kept_stores(request, PLAN) as first:
        pass
    shutil.rmtree(tmp_path / "lake")
    made(request.address)
    with kept_stores(request, PLAN) as later:
        assert later is not first
        assert later.state.multi_get(TENANT, [b"none"]) == [None]


def test_another_plan_opens_its_own_stores(things: Things, tmp_path: Path, closed: list[Stores]) -> None:
    request = request_for(made(f"file://{tmp_path}/lake"), things)
    with kept_stores(request, PLAN) as first:
        pass
    with kept_stores(request, PLAN + 1) as later:
        assert later is not first
        assert first in closed


def test_what_a_rollback_of_the_lake_took_is_found_by_the_next_scan_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.scan.workers.LARGE_ITEMS", 1)
    (tmp_path / "corpus").mkdir()
    for number in range(4):
        (tmp_path / f"corpus/{number}").write_text(f"alpha_{number:03}")
    request = request_for(made(f"file://{tmp_path}/lake"), FileSource.at(str(tmp_path / "corpus")))
    shutil.copytree(tmp_path / "lake", tmp_path / "earlier")
    assert len(scanned(request, PartThreads()).findings) == 4
    shutil.rmtree(tmp_path / "lake")
    shutil.copytree(tmp_path / "earlier", tmp_path / "lake")
    assert len(scanned(request, PartThreads()).findings) == 4


def test_kept_stores_that_are_refused_are_closed_and_opened_anew(
    things: Things, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed: list[Stores]
) -> None:
    request = request_for(made(f"file://{tmp_path}/lake"), things)
    with kept_stores(request, PLAN) as first:
        pass
    refuse([True], monkeypatch)
    with kept_stores(request, PLAN) as later:
        assert first in closed
        assert later.state.multi_get(TENANT, [b"none"]) == [None]


def test_stores_that_are_refused_after_they_were_opened_are_closed(
    things: Things, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed: list[Stores]
) -> None:
    close_kept()
    closed.clear()
    request = request_for(made(f"file://{tmp_path}/lake"), things)
    refuse([False, True], monkeypatch)
    with pytest.raises(StoreRefused), kept_stores(request, PLAN):
        raise AssertionError("these stores were refused")
    assert len(closed) == 1


def test_a_database_is_opened_for_each_part(things: Things, tmp_path: Path) -> None:
    request = request_for(made(str(tmp_path / "pipeline.db")), things)
    with kept_stores(request, PLAN) as first:
        pass
    with kept_stores(request, PLAN) as later:
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

    listings: list[str] = []
    list_objects = LocalObjects.list

    def listed(self: LocalObjects, prefix: str = "", *, start_after: str = "") -> object:
        listings.append(prefix)
        return list_objects(self, prefix, start_after=start_after)

    monkeypatch.setattr(LocalObjects, "get", counted)
    monkeypatch.setattr(LocalObjects, "list", listed)
    workers = PartThreads()
    outcome = scanned(request, workers)
    settled = sum(tasks for name, tasks in workers.calls if name == "settle_part")
    pages = [key for key in reads if key.startswith("pages/ledger/")]
    assert outcome.items == 40
    assert settled > 4
    assert pages
    assert len(pages) <= 3 * len(set(pages))
    assert listings.count("pages/ledger/") <= 6, "pages were listed for each part"
