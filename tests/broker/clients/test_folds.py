"""Folds of buckets as nats-py makes them by default, on both servers: a first copy always works, and both modes hold.

nats-py allows a time to live of single values in every bucket, so a bucket that keeps everything looks as if it could
evict. What the bucket lists is what a mirror holds; an archive holds what was not deleted.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from nats.js import JetStreamContext
from nats.js.errors import NotFoundError
from nats.js.kv import KeyValue
from typer.testing import CliRunner

from strandline import follow
from strandline.cli.app import app
from strandline.errors import FormatError
from strandline.fold import (
    ALL,
    FoldCursor,
    FoldMode,
    ModeChanged,
    RepairPolicy,
    Scope,
    SnapshotStore,
    catch_up,
    open_fold,
    open_read_only,
    parse_fold_cursor,
    repair_fold,
    watch_applied,
)
from strandline.kv.nats import NatsConnection
from tests.cli.runs import run_command
from tests.servers_nats import NatsServer
from tests.waiting import PATIENCE_S

TTLS_S = (2.0, 10.0, 60.0)
"""Times to live to try in turn: one that is over before a busy machine has looked shows nothing."""
MIRROR, ARCHIVE = RepairPolicy(fold_mode=FoldMode.MIRROR), RepairPolicy(fold_mode=FoldMode.ARCHIVE)
DEFAULTS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "history": {"history": 5},
    "ages": {"ttl": 3600.0},
    "max_bytes": {"max_bytes": 1 << 20},
    "markers": {"limit_marker_ttl": 3600.0},
}


class Fold:
    """A fold of a bucket on disk."""

    def __init__(self, path: Path, address: str, bucket: str) -> None:
        self.path = path
        self.address = address
        self.bucket = bucket
        self.scope = ALL

    def open(self) -> SnapshotStore:
        return open_fold(self.path)

    @property
    def held(self) -> dict[str, bytes]:
        with open_read_only(self.path) as reader:  # type: ignore[attr-defined]
            return {entry.key.decode(): entry.value for entry in reader.range()}

    @property
    def mark(self) -> FoldCursor:
        with open_read_only(self.path) as reader:  # type: ignore[attr-defined]
            return parse_fold_cursor(reader.cursor())

    async def catch_up(self, policy: RepairPolicy = MIRROR) -> FoldCursor:
        async with NatsConnection(self.address) as connection:
            return await catch_up(await connection.store(self.bucket), self.scope, self.open, policy=policy)

    @asynccontextmanager
    async def watched(self, policy: RepairPolicy = MIRROR) -> AsyncIterator[None]:
        """Keep it up to date while the block runs."""
        stop = asyncio.Event()
        async with NatsConnection(self.address) as connection:
            store = await connection.store(self.bucket)
            task = asyncio.create_task(watch_applied(store, self.scope, self.open, policy=policy, stop=stop))
            try:
                yield
            finally:
                stop.set()
                await task

    def shows(self, holds: Callable[[], bool]) -> bool:
        """Tell whether it is there and something holds; a database that is being made is still empty."""
        try:
            return self.path.exists() and holds()
        except FormatError:
            return False

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not self.shows(holds):  # noqa: ASYNC110 - another process may keep it
                await asyncio.sleep(0.05)


@pytest.fixture
def fold(tmp_path: Path, server: NatsServer, name: str) -> Fold:
    return Fold(tmp_path / "fold.log", server.url, name)


async def listed(js: JetStreamContext, bucket: str) -> dict[str, bytes]:
    """Return the values of a bucket; `keys` of nats-py may find none while some are on their way."""
    found = {}
    state = (await js.stream_info(f"KV_{bucket}", subjects_filter=">")).state
    for subject in state.subjects or {}:
        with suppress(NotFoundError):
            message = await js.get_last_msg(f"KV_{bucket}", subject)
            if not {"KV-Operation", "Nats-Marker-Reason"} & set(message.headers or {}):
                found[subject.removeprefix(f"$KV.{bucket}.")] = message.data or b""
    return found


async def expired(js: JetStreamContext, bucket: str, key: str) -> None:
    """Wait until the server has removed a key."""
    async with asyncio.timeout(PATIENCE_S):
        while key in await listed(js, bucket):  # noqa: ASYNC110 - the server does not tell
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("config", DEFAULTS.values(), ids=DEFAULTS)
@pytest.mark.parametrize("policy", [MIRROR, ARCHIVE], ids=["mirror", "archive"])
async def test_a_first_copy_of_an_ordinary_bucket_works_and_goes_on(
    js: JetStreamContext, fold: Fold, config: dict[str, Any], policy: RepairPolicy
) -> None:
    bucket = await js.create_key_value(bucket=fold.bucket, **config)
    for value in (b"1", b"2", b"3"):
        await bucket.put("fruit.apple", value)
    await bucket.put("fruit.pear", b"4")
    await fold.catch_up(policy)
    assert fold.held == {"fruit.apple": b"3", "fruit.pear": b"4"}
    await bucket.put("fruit.plum", b"5")
    await bucket.delete("fruit.pear")
    assert (await fold.catch_up(policy)).mode is policy.fold_mode
    assert fold.held == await listed(js, fold.bucket) == {"fruit.apple": b"3", "fruit.plum": b"5"}


async def test_the_command_and_the_library_follow_an_ordinary_bucket(
    js: JetStreamContext, fold: Fold, tmp_path: Path
) -> None:
    bucket = await js.create_key_value(bucket=fold.bucket)
    await bucket.put("a", b"1")
    await bucket.put("a", b"2")
    run = CliRunner()
    address = f"{fold.address}/{fold.bucket}"
    done = await asyncio.to_thread(run.invoke, app, ["fold", "run", address, str(fold.path), "--once", "-q"])
    assert done.exit_code == 0, done.output
    assert fold.held == {"a": b"2"}
    told = await asyncio.to_thread(run.invoke, app, ["fold", "status", str(fold.path), "--bucket", address, "--json"])
    status = json.loads(told.stdout)
    assert (status["mode"], status["complete_from"], status["next"]) == ("mirror", None, "resume")

    def followed() -> bytes:
        with follow(address, tmp_path / "other", mode=FoldMode.ARCHIVE) as other:
            other.wait_current(PATIENCE_S)
            return other["a"]

    assert await asyncio.to_thread(followed) == b"2"
    told = await asyncio.to_thread(run.invoke, app, ["fold", "status", str(tmp_path / "other"), "--json"])
    status = json.loads(told.stdout)
    assert (status["mode"], status["complete_from"]) == ("archive", 3), "a time to live may have ended before"


@pytest.mark.parametrize("policy", [MIRROR, ARCHIVE], ids=["mirror", "archive"])
async def test_a_purge_of_the_whole_bucket_and_a_write_behind_it_leave_that_write_alone(
    js: JetStreamContext, fold: Fold, policy: RepairPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.fold.watch.observation.LOOK_S", 0.2)
    bucket = await js.create_key_value(bucket=fold.bucket)
    await bucket.put("a", b"1")
    await bucket.put("b", b"2")
    async with fold.watched(policy):
        await fold.until(lambda: fold.held == {"a": b"1", "b": b"2"})
        await js.purge_stream(f"KV_{fold.bucket}")
        await bucket.put("c", b"3")
        await fold.until(lambda: fold.held == {"c": b"3"})
    await fold.catch_up(policy)
    assert fold.held == {"c": b"3"}


@pytest.mark.parametrize("policy", [MIRROR, ARCHIVE], ids=["mirror", "archive"])
async def test_a_purge_while_the_fold_is_away_is_noticed_when_it_is_back(
    js: JetStreamContext, fold: Fold, policy: RepairPolicy
) -> None:
    bucket = await js.create_key_value(bucket=fold.bucket)
    await bucket.put("a", b"1")
    await fold.catch_up(policy)
    await js.purge_stream(f"KV_{fold.bucket}")
    await fold.catch_up(policy)
    assert fold.held == {}
    await bucket.put("c", b"3")
    await fold.catch_up(policy)
    assert fold.held == {"c": b"3"}


async def test_one_run_clears_a_mirror_of_some_prefixes_although_others_wrote_last(
    js: JetStreamContext, fold: Fold
) -> None:
    bucket = await js.create_key_value(bucket=fold.bucket)
    for number in range(5):
        await bucket.put(f"a.{number}", b"1")
    fold.scope = Scope.of("a.")
    await fold.catch_up()
    await bucket.put("a.1", b"2")
    await bucket.put("b.1", b"2")
    await js.purge_stream(f"KV_{fold.bucket}", seq=6)
    await fold.catch_up()
    assert fold.held == {"a.1": b"2"}


async def test_values_that_age_out_leave_a_mirror_and_stay_in_an_archive(
    js: JetStreamContext, fold: Fold, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.fold.watch.observation.LOOK_S", 0.2)
    for ttl_s in TTLS_S:
        name, folder = f"{fold.bucket}-{ttl_s:.0f}", tmp_path / f"{ttl_s}"
        folder.mkdir()
        mirror, archive = (
            Fold(folder / "mirror.log", fold.address, name),
            Fold(folder / "archive.db", fold.address, name),
        )
        bucket = await js.create_key_value(bucket=name, ttl=ttl_s)
        async with mirror.watched(), archive.watched(ARCHIVE):
            if not await seen_by_both(bucket, "a", ttl_s, mirror, archive):
                continue
            await mirror.until(lambda mirror=mirror: mirror.held == {})  # type: ignore[misc]
            if not await seen_by_both(bucket, "b", ttl_s, mirror, archive):
                continue
        assert set(archive.held) == {"a", "b"}
        assert "a" not in mirror.held
        return
    pytest.fail("no value was seen in its time")


async def seen_by_both(bucket: KeyValue, key: str, ttl_s: float, *folds: Fold) -> bool:
    """Put a key, and tell whether each fold has shown it in its time."""
    ends = asyncio.get_running_loop().time() + ttl_s
    await bucket.put(key, b"1")
    missing = list(folds)
    while missing and asyncio.get_running_loop().time() < ends:
        missing = [fold for fold in missing if not fold.shows(lambda fold=fold: key in fold.held)]  # type: ignore[misc]
        await asyncio.sleep(0.02)
    return not missing


@pytest.mark.parametrize("config", [{}, {"limit_marker_ttl": 60.0}], ids=["plain", "markers"])
async def test_a_value_with_a_time_to_live_leaves_a_mirror_in_time_and_stays_in_an_archive(
    js: JetStreamContext, fold: Fold, tmp_path: Path, config: dict[str, Any]
) -> None:
    kept = Fold(tmp_path / "archive.db", fold.address, fold.bucket)
    bucket = await js.create_key_value(bucket=fold.bucket, **config)
    await bucket.put("stays", b"1")
    async with fold.watched(), kept.watched(ARCHIVE):
        await fold.until(lambda: fold.held == {"stays": b"1"})
        await kept.until(lambda: kept.held == {"stays": b"1"})
        goes = await created_and_seen(bucket, kept)
        await fold.until(lambda: fold.held == {"stays": b"1"} and fold.mark.has_deadlines)
    await expired(js, fold.bucket, goes)
    await fold.catch_up()
    await kept.catch_up(ARCHIVE)
    assert fold.held == {"stays": b"1"}
    assert {"stays", goes} <= set(kept.held)


async def created_and_seen(bucket: KeyValue, fold: Fold) -> str:
    """Create keys with longer and longer times to live until a fold has seen one in its time; return it."""
    loop = asyncio.get_running_loop()
    for ttl_s in TTLS_S:
        key, ends = f"goes-{ttl_s}", loop.time() + ttl_s
        await bucket.create(key, b"2", msg_ttl=ttl_s)
        while loop.time() < ends:
            if fold.shows(lambda key=key: key in fold.held):  # type: ignore[misc]
                return key
            await asyncio.sleep(0.02)
    raise AssertionError("no value was seen in its time")


async def test_a_value_that_expires_while_the_mirror_is_away_is_gone_when_it_is_back(
    js: JetStreamContext, fold: Fold
) -> None:
    bucket = await js.create_key_value(bucket=fold.bucket)
    await bucket.put("stays", b"1")
    for ttl_s in TTLS_S:
        key = f"goes-{ttl_s}"
        await bucket.create(key, b"2", msg_ttl=ttl_s)
        await fold.catch_up()
        if key in fold.held:
            break
    assert fold.held == {"stays": b"1", key: b"2"}
    await expired(js, fold.bucket, key)
    async with asyncio.timeout(PATIENCE_S):  # the server may be a moment earlier than the deadline
        while fold.held != {"stays": b"1"}:
            await fold.catch_up()


async def test_what_a_full_bucket_drops_leaves_a_mirror_whose_cursor_expired_and_an_archive_is_refused(
    js: JetStreamContext, fold: Fold, tmp_path: Path
) -> None:
    kept = Fold(tmp_path / "archive", fold.address, fold.bucket)
    bucket = await js.create_key_value(bucket=fold.bucket)
    config = (await js.stream_info(f"KV_{fold.bucket}")).config
    await js.update_stream(config.evolve(max_msgs=3, discard="old"))
    for number in range(5):
        await bucket.put(f"k{number}", b"x")
    await fold.catch_up()
    await kept.catch_up(ARCHIVE)
    assert fold.held == kept.held == {"k2": b"x", "k3": b"x", "k4": b"x"}
    assert kept.mark.floor == 6, "values with a time to live may have gone as well"
    for number in range(5, 9):
        await bucket.put(f"k{number}", b"x")
    await fold.catch_up()
    assert fold.held == await listed(js, fold.bucket) == {"k6": b"x", "k7": b"x", "k8": b"x"}
    address = f"{fold.address}/{fold.bucket}"
    done = await asyncio.to_thread(run_command, "fold", "run", address, kept.path, "--once", "-q")
    assert done.code == 1
    assert "--repair none" in done.err
    assert "RepairMode" not in done.err


async def test_an_archive_becomes_a_mirror_by_a_repair_and_a_mirror_never_an_archive(
    js: JetStreamContext, fold: Fold
) -> None:
    bucket = await js.create_key_value(bucket=fold.bucket)
    await bucket.put("stays", b"1")
    for ttl_s in TTLS_S:
        goes = f"goes-{ttl_s}"
        await bucket.create(goes, b"2", msg_ttl=ttl_s)
        await fold.catch_up(ARCHIVE)
        if goes in fold.held:
            break
    await expired(js, fold.bucket, goes)
    with pytest.raises(ModeChanged):
        await fold.catch_up(MIRROR)
    assert fold.held == {"stays": b"1", goes: b"2"}
    async with NatsConnection(fold.address) as connection:
        store = await connection.store(fold.bucket)
        await repair_fold(store, ALL, fold.open, policy=MIRROR)
        assert fold.held == {"stays": b"1"}
        assert fold.mark.mode is FoldMode.MIRROR
        for policy in (ARCHIVE, MIRROR, RepairPolicy()):
            if policy is ARCHIVE:
                with pytest.raises(ModeChanged):
                    await repair_fold(store, ALL, fold.open, policy=policy)
            else:
                assert (await fold.catch_up(policy)).mode is FoldMode.MIRROR
