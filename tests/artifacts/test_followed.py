"""Followed folds that start from artifacts take only what came after them, and publish their own."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import strandline
from strandline.artifacts import PublishedArtifacts, RoundOutcome, RoundResult, export_logical, take_snapshot
from strandline.artifacts.restorer import ArtifactRestorer, bootstrap_fold
from strandline.errors import FormatError, InvalidInput
from strandline.fold import (
    ALL,
    Backend,
    FoldBatch,
    FoldMode,
    RepairMode,
    RepairRefused,
    Scope,
    SnapshotStore,
    format_fold_cursor,
    open_fold,
    open_read_only,
)
from strandline.kv import Discard, StoreConfig
from strandline.objects import LocalObjects, MemoryObjects
from tests.artifacts.buckets import Counted, write
from tests.artifacts.fleet import Fleet
from tests.fold.repair.scenes import TRUTH, archive, folded, overflown
from tests.servers_nats import NatsServer, running_nats
from tests.waiting import PATIENCE_S, eventually


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServer]:
    with running_nats() as running:
        yield running


def publish(store: SnapshotStore, artifacts: PublishedArtifacts, folder: Path) -> None:
    with closing(take_snapshot(store)) as snapshot:
        export_logical(snapshot, folder, previous=artifacts.previous())
    artifacts.publish(folder)


def publish_fold(path: Path, artifacts: PublishedArtifacts, folder: Path) -> None:
    with closing(open_fold(path)) as store:
        publish(store, artifacts, folder)


@pytest.fixture
def artifacts(tmp_path: Path) -> PublishedArtifacts:
    return PublishedArtifacts(LocalObjects(tmp_path / "objects"))


@pytest.mark.parametrize("name", ["newcomer.fold", "newcomer.db", "newcomer.rocks"])
def test_a_newcomer_takes_only_what_came_after_the_artifact(
    name: str, server: NatsServer, artifacts: PublishedArtifacts, tmp_path: Path
) -> None:
    bucket = f"newcomer-{name.rpartition('.')[2]}"
    address = f"{server.url}/{bucket}"
    write(server, bucket, {f"key.{at}": b"%d" % at for at in range(100)})
    with strandline.follow(address, tmp_path / "old.fold") as fold:
        fold.wait_current(PATIENCE_S)
    publish_fold(tmp_path / "old.fold", artifacts, tmp_path / "export")
    last = write(server, bucket, {"key.1": b"new", "key.2": None, "another": b"x"})
    told = Counted()
    with strandline.follow(address, tmp_path / name, bootstrap=artifacts, on_change=told) as newcomer:
        newcomer.wait_for(last, PATIENCE_S)
        assert dict(newcomer) == {
            **{f"key.{at}": b"%d" % at for at in range(100) if at != 2}, "key.1": b"new", "another": b"x"
        }  # fmt: skip
    assert told.updates == 3
    with strandline.follow(address, tmp_path / name, bootstrap=artifacts, on_change=told) as again:
        again.wait_current(PATIENCE_S)
    assert told.updates == 3
    assert [path.name for path in tmp_path.glob(".*") if "lock" not in path.name] == []


def test_without_an_artifact_a_fold_begins_with_the_bucket(
    server: NatsServer, artifacts: PublishedArtifacts, tmp_path: Path
) -> None:
    write(server, "without", {"a": b"1"})
    with strandline.follow(f"{server.url}/without", tmp_path / "fold", bootstrap=artifacts) as fold:
        assert dict(fold.wait_current(PATIENCE_S)) == {"a": b"1"}


def test_a_damaged_fold_is_moved_aside_and_restored_and_what_is_no_fold_is_left_alone(
    server: NatsServer, artifacts: PublishedArtifacts, tmp_path: Path
) -> None:
    bucket = "damaged"
    last = write(server, bucket, {f"key.{at}": b"x" for at in range(10)})
    with strandline.follow(f"{server.url}/{bucket}", tmp_path / "fold") as fold:
        fold.wait_for(last, PATIENCE_S)
    publish_fold(tmp_path / "fold", artifacts, tmp_path / "export")
    with pytest.raises(FormatError):
        strandline.follow(f"{server.url}/{bucket}", tmp_path / "fold", bootstrap=artifacts, backend=Backend.SQLITE)
    (tmp_path / "mine").write_bytes(b"no fold at all")
    with pytest.raises(FormatError):
        strandline.follow(f"{server.url}/{bucket}", tmp_path / "mine", bootstrap=artifacts)
    assert (tmp_path / "mine").read_bytes() == b"no fold at all"
    damage = bytearray((tmp_path / "fold").read_bytes())
    damage[40] ^= 1
    (tmp_path / "fold").write_bytes(damage)
    told = Counted()
    with strandline.follow(f"{server.url}/{bucket}", tmp_path / "fold", bootstrap=artifacts, on_change=told) as fold:
        assert len(fold.wait_current(PATIENCE_S)) == 10
    assert told.updates == 0
    assert (tmp_path / "fold.aside-1").read_bytes() == damage


def test_an_empty_fold_is_made_of_the_artifact_too(
    server: NatsServer, artifacts: PublishedArtifacts, tmp_path: Path
) -> None:
    """A process that was killed before its first batch leaves one."""
    last = write(server, "empty", {"a": b"1", "b": b"2"})
    with strandline.follow(f"{server.url}/empty", tmp_path / "old") as fold:
        fold.wait_for(last, PATIENCE_S)
    publish_fold(tmp_path / "old", artifacts, tmp_path / "export")
    open_fold(tmp_path / "fold").close()
    told = Counted()
    with strandline.follow(f"{server.url}/empty", tmp_path / "fold", bootstrap=artifacts, on_change=told) as fold:
        assert dict(fold.wait_current(PATIENCE_S)) == {"a": b"1", "b": b"2"}
    assert told.updates == 0


def test_a_mirror_whose_artifact_the_log_no_longer_continues_lists_the_bucket(
    server: NatsServer, artifacts: PublishedArtifacts, tmp_path: Path
) -> None:
    config = StoreConfig(updates_max=5, discard=Discard.OLD)
    last = write(server, "outrun", {f"old.{at}": b"x" for at in range(5)}, config)
    with strandline.follow(f"{server.url}/outrun", tmp_path / "old") as fold:
        fold.wait_for(last, PATIENCE_S)
    publish_fold(tmp_path / "old", artifacts, tmp_path / "export")
    last = write(server, "outrun", {f"new.{at}": b"y" for at in range(8)}, config)
    with strandline.follow(f"{server.url}/outrun", tmp_path / "fold", bootstrap=artifacts) as fold:
        fold.wait_for(last, PATIENCE_S)
        eventually(lambda: sorted(fold) == [f"new.{at}" for at in range(3, 8)])


@pytest.mark.parametrize(("mode", "reason"), [(FoldMode.ARCHIVE, "the log begins"), (FoldMode.MIRROR, "of a mirror")])
def test_an_archive_whose_artifact_does_not_serve_is_refused_with_the_reason(
    mode: FoldMode, reason: str, server: NatsServer, artifacts: PublishedArtifacts, tmp_path: Path
) -> None:
    """The artifact is older than the log's floor, or of a mirror: what was evicted since is nowhere."""
    config, bucket = StoreConfig(updates_max=5, discard=Discard.OLD), f"refused-{mode.name.lower()}"
    last = write(server, bucket, {f"old.{at}": b"x" for at in range(5)}, config)
    with strandline.follow(f"{server.url}/{bucket}", tmp_path / "old", mode=mode) as fold:
        fold.wait_for(last, PATIENCE_S)
    publish_fold(tmp_path / "old", artifacts, tmp_path / "export")
    write(server, bucket, {f"new.{at}": b"y" for at in range(8)}, config)
    for _ in range(2):  # the second time the fold is there
        with pytest.raises(RepairRefused, match=reason):
            strandline.follow(
                f"{server.url}/{bucket}", tmp_path / "fold", bootstrap=artifacts, mode=FoldMode.ARCHIVE
            ).close()


def test_one_of_a_fleet_exports_again_and_again(
    server: NatsServer, artifacts: PublishedArtifacts, tmp_path: Path
) -> None:
    address = f"{server.url}/fleet"
    write(server, "fleet", {f"key.{at}": b"x" for at in range(20)})
    results: list[RoundResult | Exception] = []
    folds = [
        strandline.follow(
            address, tmp_path / f"node-{at}", bootstrap=artifacts, export_every_s=1.0, on_export=results.append
        )
        for at in range(3)
    ]
    try:
        last = write(server, "fleet", {"more": b"y"})
        eventually(lambda: (pointer := artifacts.pointer()) and pointer.rank >= last, "an export")
        last = write(server, "fleet", {"still.more": b"y"})
        eventually(lambda: (pointer := artifacts.pointer()) and pointer.rank >= last, "another export")
        for wanted in (RoundOutcome.PUBLISHED, RoundOutcome.NOT_OURS):
            eventually(lambda wanted=wanted: wanted in outcomes_of(results), wanted.name)  # type: ignore[misc]
    finally:
        for fold in folds:
            fold.close()
    assert not [result for result in results if isinstance(result, Exception)]
    artifacts.fetch(tmp_path / "fetched")


def outcomes_of(results: list[RoundResult | Exception]) -> list[RoundOutcome]:
    return [result.outcome for result in list(results) if isinstance(result, RoundResult)]


def test_a_failed_export_is_told_and_the_fold_goes_on(
    server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(server, "failing", {"a": b"1"})
    told = threading.Event()
    results: list[RoundResult | Exception] = []
    artifacts = PublishedArtifacts(MemoryObjects())

    def note(result: RoundResult | Exception) -> None:
        results.append(result)
        told.set()

    monkeypatch.setattr(artifacts, "publish", fail)
    with strandline.follow(
        f"{server.url}/failing", tmp_path / "fold", bootstrap=artifacts, export_every_s=0.1, on_export=note
    ) as fold:
        assert told.wait(PATIENCE_S)
        last = write(server, "failing", {"b": b"2"})
        assert fold.wait_for(last, PATIENCE_S)["b"] == b"2"
    assert isinstance(results[0], OSError)
    assert not (tmp_path / ".fold.exported").exists()


def fail(_: Path | str) -> object:
    raise OSError("no space is left")


def test_what_on_export_raises_ends_the_fold(server: NatsServer, tmp_path: Path) -> None:
    write(server, "raising", {"a": b"1"})

    def explode(_: object) -> None:
        raise ZeroDivisionError

    fold = strandline.follow(
        f"{server.url}/raising",
        tmp_path / "fold",
        bootstrap=PublishedArtifacts(MemoryObjects()),
        export_every_s=0.05,
        on_export=explode,
    )
    eventually(lambda: fold.status().trouble is not None)
    with pytest.raises(ZeroDivisionError):
        fold.close()


def test_exports_need_an_address_and_a_period(server: NatsServer, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput):
        strandline.follow(f"{server.url}/any", tmp_path / "fold", export_every_s=1.0)
    with pytest.raises(InvalidInput):
        strandline.follow(
            f"{server.url}/any", tmp_path / "fold", bootstrap=PublishedArtifacts(MemoryObjects()), export_every_s=0.0
        )


class TestRestores:
    """Repairs of archives on the memory twin, whose bucket keeps three updates."""

    @pytest.mark.parametrize("mode", [RepairMode.AUTO, RepairMode.RESTORE])
    def test_an_archive_that_missed_updates_is_restored_from_a_published_artifact(
        self, mode: RepairMode, tmp_path: Path
    ) -> None:
        async def check() -> None:
            bucket, shelf, other = await overflown()
            artifacts = PublishedArtifacts(MemoryObjects())
            publish(other.shelf.open(), artifacts, tmp_path / "export")
            restorer = ArtifactRestorer(artifacts, tmp_path / "fold")
            await folded(bucket, shelf, policy=archive(mode, restorer))
            assert shelf.values == TRUTH

        asyncio.run(check())
        assert [path.name for path in tmp_path.iterdir()] == ["export"]

    def test_without_an_artifact_or_without_the_scope_the_repair_is_refused(self, tmp_path: Path) -> None:
        async def check() -> None:
            bucket, shelf, _ = await overflown()
            artifacts = PublishedArtifacts(MemoryObjects())
            restorer = ArtifactRestorer(artifacts, tmp_path / "fold")
            with pytest.raises(RepairRefused, match="no artifact"):
                await folded(bucket, shelf, policy=archive(RepairMode.AUTO, restorer))
            some = await folded(bucket, scope=Scope.of("b."))
            publish(some.open(), artifacts, tmp_path / "export")
            with pytest.raises(RepairRefused, match="no artifact"):
                await folded(bucket, shelf, policy=archive(RepairMode.AUTO, restorer))

        asyncio.run(check())

    def test_an_archive_is_never_restored_from_a_mirror(self, tmp_path: Path) -> None:
        async def check() -> None:
            bucket, shelf, other = await overflown()
            before = shelf.values, shelf.mark
            cursor = other.shelf.mark._replace(mode=FoldMode.MIRROR)
            other.shelf.kept.apply(FoldBatch(), format_fold_cursor(cursor))
            artifacts = PublishedArtifacts(MemoryObjects())
            publish(other.shelf.open(), artifacts, tmp_path / "export")
            restorer = ArtifactRestorer(artifacts, tmp_path / "fold")
            with pytest.raises(RepairRefused, match="of a mirror"):
                await folded(bucket, shelf, policy=archive(RepairMode.AUTO, restorer))
            assert (shelf.values, shelf.mark) == before

        asyncio.run(check())

    def test_a_fold_is_made_only_of_an_artifact_that_fits(self, tmp_path: Path) -> None:
        fleet = Fleet(MemoryObjects(), tmp_path)  # a mirror
        fleet.write("a", "b")
        fleet.publish()
        assert bootstrap_fold(fleet.artifacts, tmp_path / "archive", mode=FoldMode.ARCHIVE) is None
        assert not (tmp_path / "archive").exists()
        assert bootstrap_fold(fleet.artifacts, tmp_path / "mirror", mode=FoldMode.MIRROR, scope=ALL) is not None
        with closing(open_read_only(tmp_path / "mirror")) as mirror:
            assert len(mirror.range()) == 2
