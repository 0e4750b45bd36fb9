"""Followers: ordinary readers see whole transactions, through kills; another history is refused."""

import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import apsw
import pytest

from strandline.errors import StorageRefused, Unavailable
from strandline.objects import MemoryObjects, ObjectInfo, ObjectStore, open_objects
from strandline.replica import (
    Follower,
    Layout,
    LtxDamaged,
    Maintenance,
    MaintenancePolicy,
    ReplicaFork,
    ReplicaGap,
    Replicator,
    ltx,
)
from strandline.replica import follower as follower_module
from strandline.replica.compaction import compact_level
from strandline.replica.follower import Followed, FollowerState, format_state, parse_state
from strandline.replica.shipper import Position
from tests.replica.databases import PAGE_SIZES, content, fill
from tests.replica.reading_child import SUM
from tests.waiting import PATIENCE_S, eventually


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ObjectStore]:
    """An empty object store."""
    store = open_objects(f"file://{tmp_path}/replica")
    yield store
    store.close()


def opened(path: Path, page_size: int = 4096) -> apsw.Connection:
    """Open a database of the application."""
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(int(PATIENCE_S * 1000))
    connection.execute(f"PRAGMA page_size = {page_size}")
    connection.execute("PRAGMA journal_mode = wal")
    return connection


@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_a_copy_is_kept_current(tmp_path: Path, store: ObjectStore, page_size: int) -> None:
    connection = opened(tmp_path / "a.db", page_size)
    fill(connection, 20)
    follower = Follower(store, tmp_path / "copy.db")
    with Replicator(tmp_path / "a.db", store) as running:
        for number in range(5):
            fill(connection, 10, seed=number)
            if number == 3:
                connection.execute("DELETE FROM t WHERE id > 10")
                connection.execute("VACUUM")
            position = running.wait_durable(PATIENCE_S)
            assert follower.catch_up().position.txid >= position.txid
            assert content(tmp_path / "copy.db") == content(tmp_path / "a.db")
    follower.close()
    connection.close()


def test_the_files_of_a_copy_that_a_link_names_are_beside_the_copy(tmp_path: Path, store: ObjectStore) -> None:
    """SQLite looks there for the journal of a follower that was killed."""
    (tmp_path / "links").mkdir()
    link = tmp_path / "links" / "link.db"
    link.symlink_to("../copy.db")
    connection = opened(tmp_path / "a.db")
    with Replicator(tmp_path / "a.db", store) as running:
        for rows in (5, 7):  # the second time there is a copy
            fill(connection, rows)
            running.wait_durable(PATIENCE_S)
            follower = Follower(store, link)
            assert (follower.followed is None) == (rows == 5)
            follower.catch_up()
            follower.close()
    assert list(link.parent.iterdir()) == [link]
    assert content(tmp_path / "copy.db") == content(tmp_path / "a.db")
    connection.close()


@pytest.mark.parametrize("step", [1, 3])
def test_a_copy_is_whole_while_the_first_snapshot_comes_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    monkeypatch.setattr("strandline.replica.snapshot_parts.PART_BYTES", 40_000)
    connection = opened(tmp_path / "a.db")
    fill(connection, 300)
    whole, some = MemoryObjects(), MemoryObjects()
    with Replicator(tmp_path / "a.db", whole) as running:
        running.wait_durable(PATIENCE_S)
    files = list(Layout(whole).files(0))
    assert len(files) > 5
    follower = Follower(some, tmp_path / "copy.db")
    for number, file in enumerate(files, 1):
        found = whole.get(file.key)
        assert found is not None
        some.put(file.key, found.body)
        if number % step == 0 or number == len(files):
            follower.catch_up()
            assert content(tmp_path / "copy.db") == (content(tmp_path / "a.db") if number == len(files) else [])
    follower.close()
    connection.close()


def test_a_reader_that_stays_sees_each_transaction(tmp_path: Path, store: ObjectStore) -> None:
    connection = opened(tmp_path / "a.db")
    fill(connection, 3)
    follower = Follower(store, tmp_path / "copy.db")
    with Replicator(tmp_path / "a.db", store) as running:
        running.wait_durable(PATIENCE_S)
        follower.catch_up()
        reader = apsw.Connection(str(tmp_path / "copy.db"))
        for rows in range(4, 9):
            fill(connection, 1, seed=rows)
            running.wait_durable(PATIENCE_S)
            follower.catch_up()
            assert list(reader.execute("SELECT count(*) FROM t")) == [(rows,)]
        reader.close()
    follower.close()
    connection.close()


def test_a_follower_waits_for_readers_and_they_for_it(tmp_path: Path, store: ObjectStore) -> None:
    connection = opened(tmp_path / "a.db")
    fill(connection, 3)
    follower = Follower(store, tmp_path / "copy.db")
    with Replicator(tmp_path / "a.db", store) as running:
        running.wait_durable(PATIENCE_S)
        follower.catch_up()
        reader = apsw.Connection(str(tmp_path / "copy.db"))
        reader.execute("BEGIN")
        before = list(reader.execute("SELECT count(*) FROM t"))
        fill(connection, 1, seed=1)
        running.wait_durable(PATIENCE_S)
        waiting = threading.Thread(target=follower.catch_up)
        waiting.start()
        for _ in range(50):
            assert list(reader.execute("SELECT count(*) FROM t")) == before, "a read transaction sees one state"
        reader.execute("COMMIT")
        waiting.join(PATIENCE_S)
        reader.set_busy_timeout(int(PATIENCE_S * 1000))
        assert list(reader.execute("SELECT count(*) FROM t")) == [(4,)]
        reader.close()
    follower.close()
    connection.close()


def move(connection: apsw.Connection, chance: random.Random) -> None:
    """Move an amount from one account to another."""
    one, other = chance.sample(range(40), 2)
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("UPDATE account SET amount = amount - 7 WHERE id = ?", (one,))
    connection.execute("UPDATE account SET amount = amount + 7 WHERE id = ?", (other,))
    connection.execute("INSERT INTO move DEFAULT VALUES")
    connection.execute("COMMIT")


def killed_rounds(place: Path, rounds: int, seed: int) -> None:
    """Kill the follower again and again under a writer and a reader."""
    chance, copy, seen = random.Random(seed), place / "copy.db", place / "seen"
    connection = opened(place / "a.db")
    connection.execute("CREATE TABLE account (id INTEGER PRIMARY KEY, amount INTEGER, pad BLOB)")
    connection.execute("CREATE TABLE move (id INTEGER PRIMARY KEY)")
    for number in range(40):
        connection.execute("INSERT INTO account VALUES (?, ?, randomblob(2000))", (number, 0 if number else SUM))
    store = open_objects(f"file://{place}/replica")
    command = [sys.executable, "-m", "tests.replica.following_child", str(place / "replica"), str(copy)]
    with ExitStack() as stack, Replicator(place / "a.db", store) as running:
        running.wait_durable(PATIENCE_S)
        for number in range(rounds):
            following = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            assert following.stdout is not None
            assert following.stdout.readline()
            if number == 0:
                reading = [sys.executable, "-m", "tests.replica.reading_child", str(copy)]
                reader = subprocess.Popen(reading, stdout=stack.enter_context(seen.open("w")))
                stack.callback(reader.wait)
                stack.callback(reader.kill)
                eventually(seen.read_text, "a reader that sees the copy")
            for _ in range(chance.randint(5, 40)):
                move(connection, chance)
            following.kill()
            following.stdout.close()
            following.wait()
            assert content(copy), "SQLite opens what a dead follower left"
        running.wait_durable(PATIENCE_S)
        follower = Follower(store, copy)
        follower.catch_up()
        follower.close()
        assert content(copy) == content(place / "a.db")
        eventually(lambda: len(set(seen.read_text().split())) > 1, "a reader that sees the copy change")
    assert "torn" not in seen.read_text()
    store.close()
    connection.close()


def test_readers_see_whole_transactions_while_followers_are_killed(tmp_path: Path) -> None:
    killed_rounds(tmp_path, 4, seed=1)


@pytest.mark.long
def test_readers_see_whole_transactions_over_many_kills(tmp_path: Path) -> None:
    killed_rounds(tmp_path, 100, seed=2)


def test_a_follower_goes_on_behind_merged_and_removed_files(tmp_path: Path, store: ObjectStore) -> None:
    connection = opened(tmp_path / "a.db")
    fill(connection, 3)
    follower, layout = Follower(store, tmp_path / "copy.db"), Layout(store)
    maintenance = Maintenance(store, MaintenancePolicy())
    with Replicator(tmp_path / "a.db", store) as running:
        running.wait_durable(PATIENCE_S)
        follower.catch_up()
        for number in range(6):
            fill(connection, 3, seed=number)
            running.wait_durable(PATIENCE_S)
        maintenance.compact(1)
        for file in list(layout.files(0)):
            store.delete(file.key)
        follower.catch_up()
        assert content(tmp_path / "copy.db") == content(tmp_path / "a.db")
        fill(connection, 3, seed=9)
        running.wait_durable(PATIENCE_S)
        follower.catch_up()
        assert content(tmp_path / "copy.db") == content(tmp_path / "a.db")
    follower.close()
    connection.close()


@pytest.mark.parametrize("state", ["", "{}", "gone"])
def test_a_copy_of_an_unknown_state_is_written_anew(tmp_path: Path, store: ObjectStore, state: str) -> None:
    connection = opened(tmp_path / "a.db")
    fill(connection, 30)
    with Replicator(tmp_path / "a.db", store) as running:
        running.wait_durable(PATIENCE_S)
        follower = Follower(store, tmp_path / "copy.db")
        follower.catch_up()
        follower.close()
        fill(connection, 3, seed=1)
        running.wait_durable(PATIENCE_S)
        file = tmp_path / "copy.db-strandline"
        file.unlink() if state == "gone" else file.write_text(state)
        follower = Follower(store, tmp_path / "copy.db")
        follower.catch_up()
        assert content(tmp_path / "copy.db") == content(tmp_path / "a.db")
        follower.close()
    connection.close()


def history(store: ObjectStore, files: int, epoch: int = 4) -> list[int]:
    """Write files of one page; return their checksums."""
    checksums = [0]
    for txid in range(1, files + 1):
        header = ltx.LtxHeader(512, 1, txid, txid, 1000, epoch=epoch, predecessor=checksums[-1])
        body = b"".join(ltx.encode(header, [(1, bytes([txid]) * 512)]))
        store.put(Layout(store).key(0, txid, txid), body)
        checksums.append(ltx.file_checksum(body))
    return checksums


@pytest.mark.parametrize(("epoch", "wrong"), [(3, 0), (9, 1), (4, 1)])
def test_another_history_is_refused(tmp_path: Path, epoch: int, wrong: int) -> None:
    store = MemoryObjects()
    checksums = history(store, 3)
    follower = Follower(store, tmp_path / "copy.db")
    follower._apply_pages = lambda *_: None  # type: ignore[method-assign]  # noqa: SLF001 - these pages are no database
    assert follower.catch_up().position.txid == 3
    before = (tmp_path / "copy.db").read_bytes()
    header = ltx.LtxHeader(512, 1, 4, 4, 1000, epoch=epoch, predecessor=checksums[-1] ^ wrong)
    store.put(Layout(store).key(0, 4, 4), b"".join(ltx.encode(header, [(1, bytes(512))])))
    with pytest.raises(ReplicaFork, match="does not continue transaction 3"):
        follower.catch_up()
    assert follower.followed is not None
    assert follower.followed.position == Position(3, checksums[-1])
    assert (tmp_path / "copy.db").read_bytes() == before


def test_a_gap_and_damage_are_refused(tmp_path: Path) -> None:
    store = MemoryObjects()
    history(store, 3)
    follower = Follower(store, tmp_path / "copy.db")
    follower.catch_up()
    history(store, 6)
    store.delete(Layout(store).key(0, 4, 4))
    with pytest.raises(ReplicaGap, match="missing after transaction 3"):
        follower.catch_up()
    store.put(Layout(store).key(0, 4, 4), b"LTX1 but nothing more")
    with pytest.raises(LtxDamaged):
        follower.catch_up()


def test_states_are_written_and_read() -> None:
    followed = Followed(Position(7, 2**63 + 1), 3, 1234)
    for state in (FollowerState(followed, 5), FollowerState(followed, 5, Followed(Position(6, 1), 2, 1000))):
        assert parse_state(format_state(state), "x") == state


def test_a_state_says_how_far_a_copy_is_by_its_counter() -> None:
    before, to = Followed(Position(6, 1), 2, 1000), Followed(Position(7, 2**63 + 1), 3, 1234)
    assert [FollowerState(to, 5, before).find(counter) for counter in (3, 4, 5, 6)] == [None, before, to, None]
    assert FollowerState(to, 0, before).find(0xFFFFFFFF) == before


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_a_copy_whose_state_is_older_is_not_set_back(
    tmp_path: Path, store: ObjectStore, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power cut that kept the copy and not the latest of its states."""
    monkeypatch.setattr(follower_module, "BATCH_BYTES", 1)
    connection, copy = opened(tmp_path / "a.db"), tmp_path / "copy.db"
    connection.execute("CREATE TABLE account (id INTEGER PRIMARY KEY, amount INTEGER, pad BLOB)")
    for number in range(4):
        connection.execute("INSERT INTO account VALUES (?, 100, randomblob(3900))", (number,))
    states = list[bytes]()
    follower = Follower(store, copy)
    with Replicator(tmp_path / "a.db", store) as running:
        for number in range(4):
            change = "amount = amount + CASE id WHEN ? THEN -7 ELSE 7 END"
            one, other = number, (number + 1) % 4
            connection.execute(f"UPDATE account SET {change} WHERE id IN (?, ?)", (one, one, other))  # noqa: S608
            running.wait_durable(PATIENCE_S)
            follower.catch_up()
            states.append((tmp_path / "copy.db-strandline").read_bytes())
        follower.close()
    (tmp_path / "copy.db-strandline").write_bytes(states[kept])
    follower = Follower(store, copy)
    seen = list[int]()
    apply_pages = follower._apply_pages  # noqa: SLF001

    def applied(*arguments: Any) -> None:  # noqa: ANN401
        apply_pages(*arguments)
        reader = apsw.Connection(str(copy))
        assert list(reader.execute("PRAGMA integrity_check")) == [("ok",)]
        seen.extend(total for (total,) in reader.execute("SELECT sum(amount) FROM account"))
        reader.close()

    monkeypatch.setattr(follower, "_apply_pages", applied)
    follower.catch_up()
    assert set(seen) == {400}
    assert content(copy) == content(tmp_path / "a.db")
    follower.close()
    connection.close()


def test_a_state_is_synced_before_the_copy_is_touched(
    tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, done = opened(tmp_path / "a.db"), list[str]()
    fill(connection, 3)
    follower = Follower(store, tmp_path / "copy.db")
    with Replicator(tmp_path / "a.db", store) as running:
        running.wait_durable(PATIENCE_S)
        follower.catch_up()
        fill(connection, 3, seed=1)
        running.wait_durable(PATIENCE_S)
    keep, write = follower._keep, follower_module._write_journal  # noqa: SLF001

    def kept(state: FollowerState) -> None:
        keep(state)
        done.append("state")

    def written(*arguments: Any) -> None:  # noqa: ANN401
        done.append("journal")
        write(*arguments)

    monkeypatch.setattr(follower, "_keep", kept)
    monkeypatch.setattr(follower_module, "_write_journal", written)
    follower.catch_up()
    follower.close()
    connection.close()
    assert done
    assert done == ["state", "journal"] * (len(done) // 2)


def test_a_follower_gives_up_waiting_for_readers_when_it_is_to_end(tmp_path: Path, store: ObjectStore) -> None:
    connection, asked = opened(tmp_path / "a.db"), threading.Event()
    fill(connection, 3)

    def is_ending() -> bool:
        asked.set()
        return True

    follower = Follower(store, tmp_path / "copy.db", is_ending=is_ending)
    with Replicator(tmp_path / "a.db", store) as running:
        running.wait_durable(PATIENCE_S)
        follower.catch_up()
        reader = apsw.Connection(str(tmp_path / "copy.db"))
        reader.execute("BEGIN")
        list(reader.execute("SELECT count(*) FROM t"))
        fill(connection, 1, seed=1)
        running.wait_durable(PATIENCE_S)
        with pytest.raises(Unavailable, match="readers hold the copy"):
            follower.catch_up()
        assert asked.is_set()
        reader.close()
        follower.catch_up()
        assert content(tmp_path / "copy.db") == content(tmp_path / "a.db")
    follower.close()
    connection.close()


def test_a_stopped_follower_waits_for_what_comes(tmp_path: Path, store: ObjectStore) -> None:
    connection = opened(tmp_path / "a.db")
    fill(connection, 3)
    with Replicator(tmp_path / "a.db", store) as running:
        running.wait_durable(PATIENCE_S)
        command = [
            sys.executable,
            "-m",
            "tests.replica.following_child",
            str(tmp_path / "replica"),
            str(tmp_path / "c.db"),
        ]
        following = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            fill(connection, 3, seed=1)
            running.wait_durable(PATIENCE_S)
            eventually(
                lambda: (tmp_path / "c.db").exists() and content(tmp_path / "c.db") == content(tmp_path / "a.db")
            )
        finally:
            following.kill()
            following.wait()
    connection.close()


class Failing:
    """A file of SQLite's layer that fails before a transaction is finished."""

    def __init__(self, file: "apsw.VFSFile") -> None:
        self._file = file

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def xTruncate(self, _: int) -> None:  # noqa: N802 - SQLite's name
        """Find the disk full."""
        raise apsw.FullError("full")


@pytest.mark.parametrize("page_size", [1024, 4096])
def test_a_transaction_that_fails_in_the_middle_is_undone_each_time(
    tmp_path: Path, store: ObjectStore, page_size: int
) -> None:
    connection = opened(tmp_path / "a.db", 1024)
    fill(connection, 30)
    follower = Follower(store, tmp_path / "copy.db")
    with Replicator(tmp_path / "a.db", store) as running:
        running.wait_durable(PATIENCE_S)
    follower.catch_up()
    before = content(tmp_path / "copy.db")
    connection.execute("PRAGMA journal_mode = delete")
    connection.execute(f"PRAGMA page_size = {page_size}")
    connection.execute("DELETE FROM t WHERE id % 2")
    connection.execute("VACUUM")
    connection.execute("PRAGMA journal_mode = wal")
    fill(connection, 5, seed=2)
    with Replicator(tmp_path / "a.db", store) as running:
        running.wait_durable(PATIENCE_S)
    file = follower._opened()  # noqa: SLF001
    follower._file = Failing(file)  # type: ignore[assignment]  # noqa: SLF001
    for _ in range(2):
        with pytest.raises(StorageRefused, match="full"):
            follower.catch_up()
    follower._file = file  # noqa: SLF001
    assert content(tmp_path / "copy.db") == before
    follower.catch_up()
    assert content(tmp_path / "copy.db") == content(tmp_path / "a.db")
    follower.close()
    connection.close()


def test_a_new_copy_has_nothing_of_an_earlier_one(tmp_path: Path, store: ObjectStore) -> None:
    connection = opened(tmp_path / "a.db")
    fill(connection, 3)
    (tmp_path / "copy.db-journal").write_bytes(b"of an earlier copy")
    (tmp_path / "copy.db-strandline").write_text("of an earlier copy")
    with Replicator(tmp_path / "a.db", store) as running:
        running.wait_durable(PATIENCE_S)
        follower = Follower(store, tmp_path / "copy.db")
        follower.catch_up()
        follower.close()
        assert not (tmp_path / "copy.db-journal").exists()
        assert content(tmp_path / "copy.db") == content(tmp_path / "a.db")
    connection.close()


def test_a_follower_that_is_at_the_end_lists_once(tmp_path: Path) -> None:
    class Counted(MemoryObjects):
        lists = 0

        def list(self, *arguments: object, **options: object) -> Iterator[ObjectInfo]:
            self.lists += 1
            return super().list(*arguments, **options)  # type: ignore[arg-type]

    store = Counted()
    history(store, 3)
    follower = Follower(store, tmp_path / "copy.db")
    follower.catch_up()
    before = store.lists
    follower.catch_up()
    assert store.lists == before + 1


@pytest.mark.parametrize("merged", [2, 1], ids=["those behind it are merged as well", "the next one is as it was"])
def test_a_late_transaction_of_a_former_leader_is_not_applied_in_place_of_what_was_merged(
    tmp_path: Path, merged: int
) -> None:
    store = MemoryObjects()
    layout = Layout(store)

    def body(txid: int, pages: dict[int, int], epoch: int, before: int) -> bytes:
        header = ltx.LtxHeader(512, 4, txid, txid, txid, epoch=epoch, predecessor=before)
        return b"".join(ltx.encode(header, [(number, bytes([value]) * 512) for number, value in pages.items()]))

    def ship(txid: int, pages: dict[int, int], epoch: int, before: int) -> int:
        made = body(txid, pages, epoch, before)
        store.put(layout.key(0, txid, txid), made, if_absent=True)
        return ltx.file_checksum(made)

    second = ship(2, {2: 2}, 1, ship(1, {1: 1, 2: 1, 3: 1, 4: 1}, 1, 0))
    follower = Follower(store, tmp_path / "copy.db")
    assert follower.catch_up().position.txid == 2
    if merged == 2:
        compact_level(store, layout, layout.all_files(), 1)
    third = ship(3, {2: 3}, 2, second)
    if merged == 1:
        compact_level(store, layout, layout.all_files(), 1)
    ship(5, {2: 5}, 2, ship(4, {2: 4}, 2, third))
    if merged == 2:
        compact_level(store, layout, layout.all_files(), 1)
    for txid in range(1, 5 if merged == 2 else 4):
        store.delete(layout.key(0, txid, txid))
    store.put(layout.key(0, 3, 3), body(3, {4: 99}, 1, second), if_absent=True)  # its name is free again
    assert follower.catch_up().position.txid == 5
    follower.close()
    assert [(tmp_path / "copy.db").read_bytes()[number * 512 - 1] for number in (2, 3, 4)] == [5, 1, 1]
