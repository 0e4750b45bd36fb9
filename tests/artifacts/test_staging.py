"""What gets its name is on stable storage before, and the name is after: the order that a loss of power needs."""

import os
from contextlib import closing
from pathlib import Path

import pytest

from strandline.artifacts import export_fold, export_logical, import_fold, take_snapshot
from strandline.clock import ManualClock
from strandline.files import OsDisk
from strandline.fold import MemoryStore
from strandline.objects import MemoryObjects
from tests.artifacts.fleet import Fleet, apply


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[int | str]:
    """Return what was done, in its order: inodes that were synced, and paths that were renamed to."""
    fsync, rename = os.fsync, OsDisk.rename
    done: list[int | str] = []

    def noted(descriptor: int) -> None:
        fsync(descriptor)
        done.append(os.fstat(descriptor).st_ino)

    def renamed(disk: OsDisk, source: Path, target: Path) -> None:
        rename(disk, source, target)
        done.append(str(target))

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(OsDisk, "rename", renamed)
    return done


def check(made: Path, events: list[int | str]) -> None:
    at = events.index(str(made))
    below = [made, *made.rglob("*")] if made.is_dir() else [made]
    assert [path.name for path in below if path.stat().st_ino not in events[:at]] == []
    assert made.parent.stat().st_ino in events[at:]


@pytest.mark.parametrize("is_raw", [False, True])
@pytest.mark.parametrize("name", ["copy", "copy.db", "copy.rocks"])
def test_exports_and_imports_are_synced_before_and_after_their_rename(
    is_raw: bool, name: str, tmp_path: Path, events: list[int | str]
) -> None:
    store = MemoryStore()
    apply(store, 0, [(b"a", b"1"), (b"b", b"2")])
    if is_raw:
        export_fold(store, tmp_path / "artifact")
    else:
        with closing(take_snapshot(store)) as snapshot:
            export_logical(snapshot, tmp_path / "artifact")
    check(tmp_path / "artifact", events)
    import_fold(tmp_path / "artifact", tmp_path / name)
    check(tmp_path / name, events)


def test_a_fetched_artifact_is_synced_before_and_after_its_rename(tmp_path: Path, events: list[int | str]) -> None:
    fleet = Fleet(MemoryObjects(clock=ManualClock()), tmp_path)
    fleet.write("a", "b")
    fleet.publish()
    fleet.fetched()
    check(tmp_path / "fetched", events)
