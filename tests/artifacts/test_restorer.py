"""Folds of published artifacts: nothing is fetched twice, and no fold is touched before another can take its place."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest

from strandline.artifacts import (
    ArtifactInvalid,
    ArtifactRestorer,
    DestinationTaken,
    Refusal,
    bootstrap_fold,
    export_fold,
    fetch_fold,
)
from strandline.artifacts import importer as imports
from strandline.artifacts.layout import format_file_key
from strandline.artifacts.manifest import ArtifactFile
from strandline.artifacts.restorer import FETCHED_SUFFIX
from strandline.artifacts.transfers import Fetching
from strandline.clock import ManualClock
from strandline.errors import Locked
from strandline.fold import ALL, Verified, compacted_log, open_fold, open_read_only
from strandline.fold.append_log import format_mark
from strandline.fold.log_index import parse_index
from strandline.objects import KeyMissing, MemoryObjects, Object, StoreUnavailable
from strandline.testing.snapshot_stores import everything
from tests.artifacts.fleet import Fleet, apply


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    (tmp_path / "exports").mkdir()
    fleet = Fleet(MemoryObjects(clock=ManualClock()), tmp_path / "exports")
    fleet.write(*(f"key.{at:03d}" for at in range(100)))
    fleet.publish()
    fleet.write("later")
    fleet.publish()
    return fleet


def requests(fleet: Fleet) -> int:
    assert isinstance(fleet.objects, MemoryObjects)
    return fleet.objects.faults.calls["get"]


def interrupted(*_: object, **__: object) -> Verified:
    raise KeyboardInterrupt


def hidden(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


class TestFetched:
    """What an earlier process left, which was killed between two steps."""

    def test_what_was_fetched_is_not_fetched_again(self, fleet: Fleet, tmp_path: Path) -> None:
        fleet.artifacts.fetch(tmp_path / f".fold{FETCHED_SUFFIX}")
        before = requests(fleet)
        fetch_fold(fleet.artifacts, tmp_path / "fold")
        assert requests(fleet) - before == 2  # the pointer and the manifest
        assert hidden(tmp_path) == []
        with closing(open_fold(tmp_path / "fold")) as fold:
            assert everything(fold) == everything(fleet.store)

    @pytest.mark.parametrize("is_staged", [False, True])
    def test_a_file_that_lost_its_bytes_is_fetched_again(self, is_staged: bool, fleet: Fleet, tmp_path: Path) -> None:
        """A loss of power keeps the name and the size of a file, and not its content."""
        fetched = tmp_path / f".fold{FETCHED_SUFFIX}"
        fleet.artifacts.fetch(fetched)
        file = max((fetched / "data").iterdir(), key=lambda path: path.stat().st_size)
        file.write_bytes(bytes(file.stat().st_size))
        if is_staged:
            (fetched / "MANIFEST.json").unlink()
            fetched.rename(tmp_path / f".{fetched.name}.fetched")
        fetch_fold(fleet.artifacts, tmp_path / "fold")
        assert hidden(tmp_path) == []

    def test_a_table_that_changes_after_it_was_checked_is_no_wrong_fold(
        self, fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A table is hashed as it comes; what is read of it later has sums of its pages, and the digest of the fold."""
        wait, place = Fetching.wait, 0

        def changed(fetching: Fetching, file: ArtifactFile) -> Path:
            path = wait(fetching, file)
            if file.run == 0:
                data = bytearray(path.read_bytes())
                data[place] ^= 0x10
                path.write_bytes(data)
            return path

        monkeypatch.setattr(Fetching, "wait", changed)
        size, refused = fleet.artifacts.newest().files[0].size, 0
        for number, place in enumerate(range(0, size, size // 20)):  # noqa: B007 - `changed` reads it
            path = tmp_path / f"fold-{number}"
            try:
                fetch_fold(fleet.artifacts, path)
            except ArtifactInvalid:
                refused += 1
                assert not path.exists()
                continue
            with closing(open_fold(path)) as fold:
                assert everything(fold) == everything(fleet.store)
        assert refused > 10
        assert hidden(tmp_path) == []

    def test_no_fold_is_fetched_for_a_path_that_is_taken(self, fleet: Fleet, tmp_path: Path) -> None:
        (tmp_path / "fold").write_bytes(b"mine")
        before = requests(fleet)
        with pytest.raises(DestinationTaken):
            fetch_fold(fleet.artifacts, tmp_path / "fold")
        assert requests(fleet) == before
        assert hidden(tmp_path) == []

    def test_a_fetch_that_was_cut_goes_on_where_it_was(self, fleet: Fleet, tmp_path: Path) -> None:
        """The files of the first attempt stay, whatever the fold had become by then."""
        files = fleet.artifacts.newest().files
        gone = StoreUnavailable("memory://", "gone")
        cast("MemoryObjects", fleet.objects).faults.fail("get", gone, nth=2 + len(files))
        with pytest.raises(StoreUnavailable):
            fetch_fold(fleet.artifacts, tmp_path / "fold")
        assert not (tmp_path / "fold").exists()
        before = requests(fleet)
        fetch_fold(fleet.artifacts, tmp_path / "fold")
        assert requests(fleet) - before == 2 + 1
        assert hidden(tmp_path) == []

    def test_a_key_that_is_missing_for_a_table_is_said(self, fleet: Fleet, tmp_path: Path) -> None:
        """A table may be older than the manifest, and be encrypted under a key that was taken away."""
        files = fleet.artifacts.newest().files
        missing = KeyMissing(files[0].path, "of last year", "keys")
        cast("MemoryObjects", fleet.objects).faults.fail("get", missing, nth=2 + len(files))
        with pytest.raises(KeyMissing, match="of last year"):
            fetch_fold(fleet.artifacts, tmp_path / "fold")
        before = requests(fleet)
        fetch_fold(fleet.artifacts, tmp_path / "fold")
        assert requests(fleet) - before == 2 + 1

    def test_nothing_is_fetched_for_a_destination_that_is_taken(self, fleet: Fleet, tmp_path: Path) -> None:
        (tmp_path / "mine").write_bytes(b"mine")
        before = requests(fleet)
        with pytest.raises(DestinationTaken):
            fleet.artifacts.fetch(tmp_path / "mine")
        assert requests(fleet) == before


class TestBootstrap:
    def test_a_fold_that_another_process_keeps_is_left_alone(self, fleet: Fleet, tmp_path: Path) -> None:
        """Two processes start at once: one makes the fold and opens it, while the other still believes it absent."""
        with closing(open_fold(tmp_path / "fold")) as store:
            apply(store, 0, [(b"a", b"1")])
            with pytest.raises(Locked):
                bootstrap_fold(fleet.artifacts, tmp_path / "fold")
            assert not (tmp_path / "fold.aside-1").exists()
        assert bootstrap_fold(fleet.artifacts, tmp_path / "fold") is None
        with closing(open_read_only(tmp_path / "fold")) as fold:
            assert [entry.key for entry in fold.range()] == [b"a"]

    @pytest.fixture
    def damaged(self, tmp_path: Path) -> Iterator[Path]:
        path = tmp_path / "fold"
        with closing(open_fold(path)) as store:
            apply(store, 0, [(b"a", b"1"), (b"b", b"2")])
        data = bytearray(path.read_bytes())
        data[20] ^= 1
        path.write_bytes(data)
        yield path
        assert (path if path.read_bytes() == data else path.with_name("fold.aside-1")).read_bytes() == data

    def test_a_damaged_fold_stays_until_another_is_whole(self, damaged: Path, fleet: Fleet) -> None:
        file = fleet.artifacts.newest().files[0]
        found = fleet.objects.get(format_file_key(file))
        assert found is not None
        fleet.objects.put(format_file_key(file), bytes(file.size))
        with pytest.raises(ArtifactInvalid):
            bootstrap_fold(fleet.artifacts, damaged)
        assert not damaged.with_name("fold.aside-1").exists()
        fleet.objects.put(format_file_key(file), found.body)
        assert bootstrap_fold(fleet.artifacts, damaged) is not None
        assert damaged.with_name("fold.aside-1").exists()
        with closing(open_fold(damaged)) as fold:
            assert everything(fold) == everything(fleet.store)


@pytest.mark.parametrize("name", ["fold", "fold.db", "fold.rocks"])
def test_a_restorer_keeps_the_artifact_as_the_fold_is_kept(name: str, fleet: Fleet, tmp_path: Path) -> None:
    """A fold on disk is not restored through one in memory."""
    reader = asyncio.run(ArtifactRestorer(fleet.artifacts, tmp_path / name).newest(ALL))
    assert reader is not None
    with closing(open_read_only(tmp_path / f".fold.restored{Path(name).suffix}")) as same:
        assert (
            type(same).__name__
            == {"": "AppendLogReader", ".db": "SqliteReader", ".rocks": "RocksDbReader"}[Path(name).suffix]
        )
    reader.close()
    assert hidden(tmp_path) == []


class TestRaw:
    """Files of a store, which are moved into the fold and not copied."""

    @pytest.fixture(params=["fold", "fold.db", "fold.rocks"])
    def path(self, request: pytest.FixtureRequest, fleet: Fleet, tmp_path: Path) -> Path:
        """Publish a fold of each backend in its own files."""
        with closing(open_fold(tmp_path / f"first.{request.param}")) as store:
            fleet.revision = apply(store, fleet.revision, [(b"key %d" % at, b"x" * at) for at in range(300)])
            export_fold(store, tmp_path / "raw")
        fleet.artifacts.publish(tmp_path / "raw")
        return tmp_path / str(request.param)

    def test_the_files_that_came_are_the_fold(self, path: Path, fleet: Fleet) -> None:
        manifest = fetch_fold(fleet.artifacts, path)
        with closing(open_read_only(path)) as fold:
            found = fold.verify()
        assert (found.cursor, found.entries, found.digest.hex()) == (manifest.cursor, 300, manifest.digest)
        assert hidden(path.parent) == []

    def test_a_file_that_is_not_the_one_of_the_manifest_is_no_fold(self, path: Path, fleet: Fleet) -> None:
        file = max(fleet.artifacts.newest().files, key=lambda file: file.size)
        fleet.objects.put(format_file_key(file), bytes(file.size))
        with pytest.raises(ArtifactInvalid) as caught:
            fetch_fold(fleet.artifacts, path)
        assert caught.value.refusal is Refusal.TAMPERED
        assert not path.exists()
        assert hidden(path.parent) == []

    def test_a_fetch_that_was_cut_goes_on_where_it_was(self, path: Path, fleet: Fleet) -> None:
        files = [file for file in fleet.artifacts.newest().files if file.size]
        gone = StoreUnavailable("memory://", "gone")
        cast("MemoryObjects", fleet.objects).faults.fail("get", gone, nth=2 + len(files))
        with pytest.raises(StoreUnavailable):
            fetch_fold(fleet.artifacts, path)
        before = requests(fleet)
        fetch_fold(fleet.artifacts, path)
        assert requests(fleet) - before == 2 + 1

    def test_a_file_that_came_is_not_fetched_again_when_its_fold_was_not_made(
        self, path: Path, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A process may be killed while it reads what it fetched."""
        with monkeypatch.context() as patch:
            patch.setattr(imports, "verify_copy", interrupted)
            with pytest.raises(KeyboardInterrupt):
                fetch_fold(fleet.artifacts, path)
        before = requests(fleet)
        fetch_fold(fleet.artifacts, path)
        assert requests(fleet) - before == 2
        assert hidden(path.parent) == []

    def test_an_artifact_of_another_backend_takes_the_place_of_one_that_was_begun(
        self, path: Path, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Both have `data/fold`, and one of them as a folder."""
        with monkeypatch.context() as patch:
            patch.setattr(imports, "verify_copy", interrupted)
            with pytest.raises(KeyboardInterrupt):
                fetch_fold(fleet.artifacts, path)
        other = path.with_name("other" if path.name == "fold.rocks" else "other.rocks")
        with closing(open_fold(other)) as store:
            fleet.revision = apply(store, fleet.revision, [(b"other", b"value")])
            export_fold(store, path.with_name("raw of other"))
        fleet.artifacts.publish(path.with_name("raw of other"))
        fetch_fold(fleet.artifacts, path)
        with closing(open_read_only(path)) as fold:
            assert [entry.key for entry in fold.range()] == [b"other"]

    def test_a_link_in_the_place_of_a_file_is_not_followed(self, path: Path, fleet: Fleet) -> None:
        """A link to the same bytes stays outside of the fold."""
        file = fleet.artifacts.newest().files[0]
        stage = path.with_name(f"..{path.name}{FETCHED_SUFFIX}.fetched")
        (stage / file.path).parent.mkdir(parents=True)
        outside = path.with_name("outside")
        outside.write_bytes(cast("Object", fleet.objects.get(format_file_key(file))).body)
        (stage / file.path).symlink_to(outside)
        fetch_fold(fleet.artifacts, path)
        assert not any(each.is_symlink() for each in (path, *path.rglob("*")))


@pytest.mark.parametrize("is_raw", [False, True])
def test_a_bootstrapped_log_is_opened_by_its_index(
    is_raw: bool, fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What makes the first opening quick goes with the fold to its path, and says that all of it is on the disk."""
    monkeypatch.setattr(compacted_log, "INDEX_BYTES_MIN", 0)
    if is_raw:
        with closing(open_fold(tmp_path / "first")) as store:
            fleet.revision = apply(store, fleet.revision, [(b"key %d" % at, b"x" * at) for at in range(300)])
            export_fold(store, tmp_path / "raw")
        fleet.artifacts.publish(tmp_path / "raw")
    path = tmp_path / "fold"
    assert bootstrap_fold(fleet.artifacts, path) is not None
    known = parse_index(path.with_name("fold.index").read_bytes(), path.read_bytes())
    assert known is not None
    assert known.end == path.stat().st_size
    assert path.with_name("fold.clean").read_bytes() == format_mark(known.end)
    assert hidden(tmp_path) == []
