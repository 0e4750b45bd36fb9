"""A process that exports or imports dies at changes of the file system; what it leaves is whole or nothing."""

import os
from contextlib import closing
from pathlib import Path

import pytest

from strandline.artifacts import export_fold, import_fold, read_artifact
from strandline.artifacts.exporter import SNAPSHOT_MARK
from strandline.artifacts.importer import SIDE_SUFFIXES
from strandline.artifacts.staging import STAGE_MARK, own_name, remove_tree
from strandline.fold import open_fold
from strandline.journal import WRITTEN
from strandline.testing.snapshot_stores import changes, everything
from tests.artifacts.child import run
from tests.effort import Part, parts
from tests.forkserver import forkserver
from tests.waiting import PATIENCE_S

CHANGES_MAX = 400
STEP = {"fold": 1, "fold.db": 1, "fold.rocks": 7}
"""How many changes are passed over from one death to the next; RocksDB has many files."""


def died(folder: Path, name: str, action: str, number: int) -> bool:
    context = forkserver()
    ours, theirs = context.Pipe()
    child = context.Process(target=run, args=(theirs, str(folder), name, action, number), daemon=True)
    child.start()
    theirs.close()
    try:
        assert ours.poll(PATIENCE_S)
        ended = ours.recv() == "done"
    except EOFError:
        ended = False
    child.join(PATIENCE_S)
    assert child.exitcode == (0 if ended else 9)
    return not ended


def fill(path: Path) -> None:
    with closing(open_fold(path, sync=WRITTEN)) as store:
        store.apply(*changes(1, *((b"key %d" % at, b"x" * at) for at in range(50))))


def remove(path: Path) -> None:
    """Remove an artifact, or a fold with what is beside it."""
    for suffix in ("", *SIDE_SUFFIXES):
        remove_tree(path.with_name(path.name + suffix))


@pytest.mark.parametrize("name", STEP)
@pytest.mark.parametrize("action", ["export", "import"])
@parts(24)
def test_a_killed_export_or_import_leaves_nothing_half(action: str, name: str, part: Part, tmp_path: Path) -> None:
    fill(tmp_path / name)
    with closing(open_fold(tmp_path / name)) as store:
        before = everything(store)
        if action == "import":
            export_fold(store, tmp_path / "artifact")
    deaths, behind = 0, False
    for number in range(1 + part.number, CHANGES_MAX, part.count * STEP[name]):
        if not died(tmp_path, name, action, number):
            break
        deaths += 1
        if (tmp_path / "artifact").exists():
            read_artifact(tmp_path / "artifact")
        if (tmp_path / "copy").exists():  # it died behind the rename
            behind = True
            break
        if action == "export" and (tmp_path / "artifact").exists():
            behind = True
            break
    assert deaths
    if behind:  # the next export or import at that path removes what it left
        remove(tmp_path / ("artifact" if action == "export" else "copy"))
    if not (tmp_path / "artifact").exists():
        with closing(open_fold(tmp_path / name)) as store:
            export_fold(store, tmp_path / "artifact")
    if not (tmp_path / "copy").exists():
        import_fold(tmp_path / "artifact", tmp_path / "copy")
    with closing(open_fold(tmp_path / "copy")) as copy:
        assert everything(copy) == before
    hidden = [path.name for path in tmp_path.iterdir() if ".staged-" in path.name or ".snapshot-" in path.name]
    assert hidden == []


@pytest.mark.parametrize("name", STEP)
def test_what_an_earlier_process_with_the_same_id_left_is_removed(name: str, tmp_path: Path) -> None:
    """In a container every process has the same id."""
    fill(tmp_path / name)
    number = int(own_name("").partition("-")[2])
    for prefix in (f".artifact{STAGE_MARK}", f".copy{STAGE_MARK}", f".{name}{SNAPSHOT_MARK}"):
        for following in range(number, number + 8):
            left = tmp_path / f"{prefix}{os.getpid()}-{following}"
            (left / "data").mkdir(parents=True)
            (left / "data" / "fold").write_bytes(b"of a process that is gone")
    with closing(open_fold(tmp_path / name)) as store:
        export_fold(store, tmp_path / "artifact")
    import_fold(tmp_path / "artifact", tmp_path / "copy")
    assert [path.name for path in tmp_path.iterdir() if ".staged-" in path.name or ".snapshot-" in path.name] == []
