"""Published artifacts: the pointer comes last, never moves back, and never names what is not whole."""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from strandline.artifacts import (
    ArtifactInvalid,
    ArtifactUnfit,
    NoArtifact,
    Outcome,
    PointerContended,
    PublishedArtifacts,
    Refusal,
    fetch_fold,
    import_fold,
    transfers,
)
from strandline.artifacts.layout import POINTER_KEY, format_file_key
from strandline.artifacts.transfers import Fetching
from strandline.clock import ManualClock
from strandline.fold import open_fold
from strandline.objects import (
    ConditionsIgnored,
    LocalObjects,
    MemoryObjects,
    ObjectConflict,
    ObjectStore,
    StoreUnavailable,
    WriteUnknown,
    open_objects,
)
from strandline.testing.snapshot_stores import everything
from tests.artifacts.fleet import Fleet, advance
from tests.servers_seaweed import SeaweedServer, fresh_address

GRACE_S = 400.0


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    fleet = Fleet(MemoryObjects(clock=ManualClock()), tmp_path)
    fleet.write(*(f"key.{at:03d}" for at in range(100)))
    return fleet


@contextmanager
def opened(kind: str, folder: Path) -> Iterator[ObjectStore]:
    match kind:
        case "memory":
            yield MemoryObjects()
        case "folder":
            yield LocalObjects(folder)
        case _:
            with closing(open_objects(fresh_address(), conditional=True)) as objects:
                yield objects


@pytest.mark.parametrize("kind", ["memory", "folder", "s3"])
@pytest.mark.parametrize("raw", [False, True])
def test_what_is_published_is_fetched_and_imported(
    kind: str, raw: bool, tmp_path: Path, seaweed_server: SeaweedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in seaweed_server.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(transfers, "WHOLE_BYTES_MAX", 1000)
    with opened(kind, tmp_path / "objects") as objects:
        fleet = Fleet(objects, tmp_path)
        fleet.write(*(f"key.{at:03d}" for at in range(200)))
        with pytest.raises(NoArtifact):
            fleet.artifacts.newest()
        assert fleet.artifacts.publish(fleet.export(raw=raw)).outcome is Outcome.PUBLISHED
        manifest = fleet.fetched()
        assert manifest == fleet.artifacts.newest()
        import_fold(tmp_path / "fetched", tmp_path / "copy")
        with closing(open_fold(tmp_path / "copy")) as copy:
            assert everything(copy) == everything(fleet.store)


def test_a_second_export_uploads_and_a_later_fetch_downloads_only_what_changed(fleet: Fleet) -> None:
    first = fleet.publish()
    fleet.fetched("old")
    fleet.write("key.001", "new")
    fleet.delete("key.002")
    second = fleet.publish()
    assert (first.outcome, second.outcome) == (Outcome.PUBLISHED, Outcome.PUBLISHED)
    assert second.manifest.files[0] == first.manifest.files[0]
    (delta,) = second.manifest.runs[1]
    assert second.uploaded_bytes == delta.size
    assert isinstance(fleet.objects, MemoryObjects)
    before = fleet.objects.faults.calls["get"]
    fleet.fetched("new", reuse=fleet.folder / "old")
    assert fleet.objects.faults.calls["get"] - before == 3  # the pointer, the manifest, and one file
    import_fold(fleet.folder / "new", fleet.folder / "copy")
    with closing(open_fold(fleet.folder / "copy")) as copy:
        assert everything(copy) == everything(fleet.store)


@pytest.mark.parametrize("whole_bytes_max", [100, 1 << 20])
def test_a_file_that_changed_after_its_export_is_not_uploaded(
    whole_bytes_max: int, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfers, "WHOLE_BYTES_MAX", whole_bytes_max)
    path = fleet.export()
    (file,) = (path / "data").iterdir()
    file.write_bytes(file.read_bytes()[:-1] + b"\0")
    with pytest.raises(ArtifactInvalid):
        fleet.artifacts.publish(path)
    assert [info.key for info in fleet.objects.list()] == []


def test_raw_files_that_did_not_change_are_not_uploaded_again(fleet: Fleet) -> None:
    assert fleet.artifacts.publish(fleet.export(raw=True)).uploaded_bytes
    assert fleet.artifacts.publish(fleet.export(raw=True)).uploaded_bytes == 0
    fleet.check_whole()


def test_a_slow_exporter_cannot_clobber(fleet: Fleet) -> None:
    slow = fleet.export()
    fleet.write("later")
    fleet.publish()
    before = fleet.artifacts.pointer()
    assert fleet.artifacts.publish(slow).outcome is Outcome.SUPERSEDED
    assert fleet.artifacts.pointer() == before


def test_an_increment_upon_an_artifact_that_the_pointer_left_is_not_published(fleet: Fleet) -> None:
    """Its files may be removed at any moment."""
    fleet.publish()
    previous = fleet.artifacts.previous()
    fleet.write("later")
    fleet.artifacts.publish(fleet.export())  # a new base
    fleet.write("still later")
    before = fleet.artifacts.pointer()
    assert fleet.artifacts.publish(fleet.export(previous)).outcome is Outcome.REBASED
    assert fleet.artifacts.pointer() == before
    fleet.check_whole()


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("error", [StoreUnavailable("memory://", "no"), WriteUnknown("key", "no answer")])
def test_wherever_a_publication_is_cut_the_pointer_names_what_is_whole(
    error: StoreUnavailable | WriteUnknown, after: bool, fleet: Fleet
) -> None:
    assert isinstance(fleet.objects, MemoryObjects)
    for nth in range(1, 10):
        fleet.write(f"round.{nth}")
        fleet.objects.faults.fail("put", error, nth=nth % 4 + 1, after=after)
        try:
            fleet.publish()
        except (StoreUnavailable, WriteUnknown):
            fleet.check_whole()
    fleet.objects.faults._pending.clear()  # noqa: SLF001 - no more of them
    fleet.write("last")
    assert fleet.publish().outcome is Outcome.PUBLISHED
    fleet.check_whole()


def test_a_pointer_that_cannot_be_read_is_told_and_replaced(fleet: Fleet) -> None:
    for body in (b"", b"not JSON", b"{}", b'{"format": 1, "rank": -1, "manifest": "x"}', b"[1]", b"[" * 4096):
        fleet.objects.put(POINTER_KEY, body)
        with pytest.raises(ArtifactInvalid) as refused:
            fleet.fetched()
        assert refused.value.refusal is Refusal.NOT_A_MANIFEST
    assert fleet.publish().outcome is Outcome.PUBLISHED
    fleet.check_whole()


def test_a_pointer_that_cannot_be_read_is_not_moved_back(fleet: Fleet) -> None:
    """A removal that was planned by the pointer before would take the payload of a lower rank."""
    slow = fleet.export()
    fleet.write("later")
    fleet.publish()
    fleet.objects.put(POINTER_KEY, b"{")
    assert fleet.artifacts.publish(slow).outcome is Outcome.SUPERSEDED
    assert fleet.artifacts.pointer() is None
    assert fleet.artifacts.publish(fleet.export()).outcome is Outcome.PUBLISHED
    fleet.check_whole()


def test_a_pointer_of_a_later_format_is_refused_and_left_alone(fleet: Fleet) -> None:
    later = b'{"format": 2, "rank": 1, "manifest": "x", "more": 1}'
    fleet.objects.put(POINTER_KEY, later)
    refused: list[Callable[[], object]] = [fleet.publish, fleet.fetched, lambda: fleet.artifacts.prune(0)]
    for each in refused:
        with pytest.raises(ArtifactUnfit) as unfit:
            each()
        assert unfit.value.refusal is Refusal.SCHEMA
    found = fleet.objects.get(POINTER_KEY)
    assert found is not None
    assert found.body == later


@pytest.mark.parametrize("is_whole", [False, True])
def test_a_file_that_was_lost_in_the_store_is_not_published_again(is_whole: bool, fleet: Fleet) -> None:
    """A rule of the store removes old objects, and a base is old."""
    fleet.publish()
    previous = fleet.artifacts.previous()
    assert previous is not None
    fleet.write("later")
    increment = fleet.export(previous)
    (lost,) = previous.manifest.files
    fleet.objects.delete(format_file_key(lost))
    if is_whole:  # the same bytes once more, under the name that the pointer's target has for them
        (increment / lost.path).write_bytes(fleet_file(fleet, lost.path))
    outcome = fleet.artifacts.publish(increment).outcome
    assert outcome is (Outcome.PUBLISHED if is_whole else Outcome.REBASED)
    if is_whole:
        fleet.check_whole()


def fleet_file(fleet: Fleet, path: str) -> bytes:
    return (fleet.folder / "export-1" / path).read_bytes()


def test_an_empty_artifact_is_followed_by_a_base(fleet: Fleet) -> None:
    for at in range(100):
        fleet.delete(f"key.{at:03d}")
    assert fleet.publish().manifest.files == ()
    fleet.check_whole()
    fleet.write("again")
    assert list(fleet.publish().manifest.runs) == [0]
    fleet.check_whole()


def test_a_folder_that_is_no_artifact_is_not_published(fleet: Fleet) -> None:
    with pytest.raises(ArtifactInvalid) as refused:
        fleet.artifacts.publish(fleet.folder / "nothing")
    assert refused.value.refusal is Refusal.NOT_A_MANIFEST


def test_after_eight_lost_races_the_exporter_gives_up(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    put, tries = fleet.objects.put, 0

    def contended(key: str, body: bytes, **more: Any) -> str:  # noqa: ANN401 - what `put` takes
        nonlocal tries
        if key == POINTER_KEY:
            tries += 1
            raise ObjectConflict(key, "moved")
        return put(key, body, **more)

    monkeypatch.setattr(fleet.objects, "put", contended)
    with pytest.raises(PointerContended):
        fleet.artifacts.publish(fleet.export())
    assert tries == 8
    assert fleet.artifacts.pointer() is None


def test_a_store_that_ignores_conditions_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    put: Callable[..., str] = MemoryObjects.put
    monkeypatch.setattr(MemoryObjects, "put", lambda self, key, body, **_: put(self, key, body))
    with pytest.raises(ConditionsIgnored):
        PublishedArtifacts.open("memory://ignores-conditions")


def test_exports_go_on_whole_where_the_manifest_that_the_pointer_names_is_lost(fleet: Fleet) -> None:
    fleet.publish()
    pointer = fleet.artifacts.pointer()
    assert pointer is not None
    for damage in (lambda key: fleet.objects.put(key, b"{"), fleet.objects.delete):
        damage(pointer.manifest_key)
        assert fleet.artifacts.previous() is None
    fleet.write("later")
    assert fleet.publish().outcome is Outcome.PUBLISHED
    fleet.check_whole()


class TestFetch:
    def test_a_fetch_that_was_cut_goes_on_where_it_was(self, fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(transfers, "CHUNK_BYTES", 500)
        monkeypatch.setattr(transfers, "RANGES_AHEAD", 1)  # so that the fifth request is for the third range
        fleet.publish()
        (file,) = fleet.artifacts.newest().files
        objects = fleet.objects
        assert isinstance(objects, MemoryObjects)
        objects.faults.fail("get", StoreUnavailable("memory://", "gone"), nth=5)
        with pytest.raises(StoreUnavailable):
            fleet.fetched()
        assert not (fleet.folder / "fetched").exists()
        starts: list[int] = []
        get = objects.get

        def noted(key: str, *, start: int = 0, stop: int | None = None) -> object:
            if key == format_file_key(file):
                starts.append(start)
            return get(key, start=start, stop=stop)

        monkeypatch.setattr(objects, "get", noted)
        fleet.fetched()
        assert starts[0] == 1000
        fleet.check_whole()

    def test_a_changed_object_never_becomes_an_artifact(self, fleet: Fleet) -> None:
        fleet.publish()
        (file,) = fleet.artifacts.newest().files
        found = fleet.objects.get(format_file_key(file))
        assert found is not None
        for body in (found.body[:-1], found.body[:-1] + b"\0", found.body[:100]):
            fleet.objects.put(format_file_key(file), body)
            with pytest.raises(ArtifactInvalid) as refused:
                fleet.fetched()
            assert refused.value.refusal is Refusal.TAMPERED
            assert not (fleet.folder / "fetched").exists()
        fleet.objects.delete(format_file_key(file))
        with pytest.raises(ArtifactInvalid) as missing:
            fleet.fetched()
        assert missing.value.refusal is Refusal.MISSING_FILE

    def test_a_changed_manifest_is_refused_by_the_hash_in_the_pointer(self, fleet: Fleet) -> None:
        fleet.publish()
        pointer = fleet.artifacts.pointer()
        assert pointer is not None
        found = fleet.objects.get(pointer.manifest_key)
        assert found is not None
        fleet.objects.put(pointer.manifest_key, found.body.replace(b'"entries": 100', b'"entries": 101'))
        with pytest.raises(ArtifactInvalid) as refused:
            fleet.fetched()
        assert refused.value.refusal is Refusal.TAMPERED

    def test_a_manifest_that_is_removed_under_a_reader_is_left_for_the_newest(
        self, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fleet.publish()
        needed_pointer = fleet.artifacts._needed_pointer  # noqa: SLF001 - the moment between pointer and manifest

        def late() -> object:
            monkeypatch.undo()
            found = needed_pointer()
            fleet.write("later")
            fleet.artifacts.publish(fleet.export())
            fleet.objects.delete(found.manifest_key)
            return found

        monkeypatch.setattr(fleet.artifacts, "_needed_pointer", late)
        assert fleet.fetched().rank == fleet.revision
        fleet.check_whole()

    @pytest.mark.parametrize("becomes_fold", [False, True])
    def test_an_artifact_that_is_removed_under_a_reader_is_left_for_the_newest(
        self, becomes_fold: bool, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fleet.publish()
        fetching = fleet.artifacts.fetching

        def late(*args: Any, **more: Any) -> AbstractContextManager[Fetching]:  # noqa: ANN401 - passed on
            monkeypatch.undo()
            fleet.write("later")
            fleet.artifacts.publish(fleet.export())
            advance(fleet, GRACE_S + 1)
            fleet.write("and later")
            fleet.artifacts.publish(fleet.export())
            assert fleet.artifacts.prune(GRACE_S).files == 2
            return fetching(*args, **more)

        monkeypatch.setattr(fleet.artifacts, "fetching", late)
        found = fetch_fold(fleet.artifacts, fleet.folder / "fold") if becomes_fold else fleet.fetched()
        assert found.rank == fleet.revision
        fleet.check_whole()


class TestPrune:
    def test_what_nothing_points_to_goes_after_the_grace(self, fleet: Fleet) -> None:
        fleet.publish()
        fleet.write("later")
        fleet.artifacts.publish(fleet.export())
        assert fleet.artifacts.prune(GRACE_S) == (0, 0, 0)
        advance(fleet, GRACE_S + 1)
        fleet.write("and later")
        last = fleet.artifacts.publish(fleet.export())
        assert fleet.artifacts.prune(GRACE_S, dry_run=True)[:2] == (2, 2)
        assert fleet.artifacts.prune(GRACE_S)[:2] == (2, 2)
        assert fleet.artifacts.prune(0)[:2] == (0, 0)
        assert [manifest.rank for manifest in fleet.artifacts.manifests()] == [last.manifest.rank]
        fleet.check_whole()

    def test_runs_that_a_kept_artifact_shares_stay(self, fleet: Fleet) -> None:
        """Their rank is far below the pointer's, and they are old: only the mark keeps them."""
        for round_ in range(4):
            fleet.write(f"round.{round_}")
            fleet.publish()
            advance(fleet, 10 * GRACE_S)
        newest = fleet.artifacts.newest()
        assert len({file.rank for file in newest.files}) == 4
        assert fleet.artifacts.prune(0)[:2] == (3, 0)
        fleet.check_whole()

    def test_the_payload_of_an_exporter_that_may_still_publish_stays(
        self, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """However old it is when another removes what nothing points to: its rank is not below the pointer's."""
        fleet.publish()
        fleet.write("later")
        move_pointer = fleet.artifacts._move_pointer  # noqa: SLF001 - the moment between payload and pointer

        def late(*args: Any) -> bool:  # noqa: ANN401 - passed on
            advance(fleet, 10 * GRACE_S)
            fleet.objects.put("files/of-now", b"shows the time")
            assert fleet.artifacts.prune(GRACE_S)[:2] == (0, 0)
            return move_pointer(*args)

        monkeypatch.setattr(fleet.artifacts, "_move_pointer", late)
        assert fleet.artifacts.publish(fleet.export()).outcome is Outcome.PUBLISHED
        fleet.check_whole()

    def test_a_removal_that_pauses_while_others_publish_and_remove_leaves_what_the_new_artifact_shares(
        self, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The manifest that it would mark by is gone then, and so must be its right to remove."""
        fleet.publish()
        fleet.write("increment")
        fleet.publish()
        advance(fleet, 10 * GRACE_S)
        others, marked = PublishedArtifacts(fleet.objects), fleet.artifacts._marked  # noqa: SLF001 - between list and mark

        def late(kept: set[str]) -> object:
            fleet.write("another increment")
            others.publish(fleet.export(others.previous()))
            assert others.prune(GRACE_S).manifests == 2
            return marked(kept)

        monkeypatch.setattr(fleet.artifacts, "_marked", late)
        assert fleet.artifacts.prune(0) == (0, 0, 0)
        assert len(fleet.artifacts.newest().files) == 3
        fleet.check_whole()

    @pytest.mark.parametrize("is_lost", [False, True])
    def test_nothing_is_removed_where_the_manifest_cannot_be_read(self, is_lost: bool, fleet: Fleet) -> None:
        """Which files it names is not known."""
        fleet.publish()
        fleet.write("later")
        fleet.publish()
        for info in list(fleet.objects.list("manifests/")):
            if is_lost:
                fleet.objects.delete(info.key)
            else:
                fleet.objects.put(info.key, b"{}")
        advance(fleet, 10 * GRACE_S)
        fleet.objects.put("files/of-now", b"shows the time")
        before = [info.key for info in fleet.objects.list("files/")]
        with contextlib.suppress(ArtifactInvalid):
            assert fleet.artifacts.prune(0) == (0, 0, 0)
        assert [info.key for info in fleet.objects.list("files/")] == before

    def test_nothing_is_removed_where_the_pointer_cannot_be_read(self, fleet: Fleet) -> None:
        fleet.publish()
        fleet.objects.put(POINTER_KEY, b"{")
        advance(fleet, 10 * GRACE_S)
        assert fleet.artifacts.prune(0) == (0, 0, 0)
