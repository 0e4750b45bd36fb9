"""A replica in a store that encrypts: shipped, merged, restored, followed and read; never readable without its key."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.errors import StrandlineError
from strandline.objects import KeyMissing, KeyRing, LocalObjects, ObjectAltered, open_objects
from strandline.objects.encrypted import EncryptedObjects, rotate
from strandline.replica import Follower, Layout, Maintenance, Replicator, plan_restore, restore, tables
from strandline.replica.pages import ReplicaPages
from tests.replica.databases import content, database, fill
from tests.waiting import PATIENCE_S

OLD, NEW = {"old": bytes(range(32))}, {"new": bytes(range(1, 33))}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder with a database, and its replica under the old key."""
    store = open_objects(f"file://{tmp_path}/replica", conditional=True, keys=KeyRing(OLD))
    with database(tmp_path / "a.db") as connection:
        connection.set_busy_timeout(int(PATIENCE_S * 1000))
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, body BLOB)")
        connection.execute("INSERT INTO t (body) VALUES ('plainly written')")
        with Replicator(tmp_path / "a.db", store) as running:
            for number in range(4):
                fill(connection, 30, seed=number)
                running.wait_durable(PATIENCE_S)
        maintenance = Maintenance(store)
        assert maintenance.compact(1) == 1
        assert maintenance.snapshot()
        fill(connection, 5)
        with Replicator(tmp_path / "a.db", store) as running:
            running.wait_durable(PATIENCE_S)
        yield tmp_path


def test_a_replica_is_restored_followed_and_read_with_its_key_and_not_without(folder: Path) -> None:
    store = EncryptedObjects(LocalObjects(folder / "replica"), KeyRing(OLD))
    restore(store, Layout(store), folder / "out.db")
    expected = content(folder / "a.db")
    assert content(folder / "out.db") == expected
    follower = Follower(store, folder / "copy.db")
    follower.catch_up()
    follower.close()
    assert content(folder / "copy.db") == expected
    with ReplicaPages(store, plan_restore(Layout(store).all_files())) as pages:
        read = tables.read_database(pages, pages.header.commit)
        table = tables.find_table(pages, read, "t")
        assert [("t", *row) for row in tables.read_table(pages, read, table, ["id", "body"])] == expected
    for path in (folder / "replica").rglob("*.ltx"):
        assert b"plainly" not in path.read_bytes()
        assert not path.read_bytes().startswith(b"LTX1")
    for other in (LocalObjects(folder / "replica"), EncryptedObjects(LocalObjects(folder / "replica"), KeyRing(NEW))):
        with pytest.raises(StrandlineError):
            restore(other, Layout(other), folder / "no.db")
    assert not (folder / "no.db").exists()


def test_files_that_were_swapped_are_refused(folder: Path) -> None:
    inner = LocalObjects(folder / "replica")
    first, second, *_ = Layout(inner).files(0)
    found = inner.get(first.key)
    assert found is not None
    inner.put(second.key, found.body)
    store = EncryptedObjects(inner, KeyRing(OLD))
    with pytest.raises(ObjectAltered):
        restore(store, Layout(store), folder / "no.db", txid=second.max_txid)


def test_a_replicator_goes_on_under_a_new_key_and_the_old_one_may_go_after_a_rotation(folder: Path) -> None:
    inner = LocalObjects(folder / "replica")
    both = EncryptedObjects(inner, KeyRing({**NEW, **OLD}))
    with database(folder / "a.db") as connection:
        connection.set_busy_timeout(int(PATIENCE_S * 1000))
        with Replicator(folder / "a.db", both) as running:
            fill(connection, 5, seed=9)
            running.wait_durable(PATIENCE_S)
        expected = content(folder / "a.db")
    only = EncryptedObjects(inner, KeyRing(NEW))
    with pytest.raises(KeyMissing):
        restore(only, Layout(only), folder / "early.db", txid=2)
    seen, changed = rotate(both)
    assert 0 < changed < seen
    restore(only, Layout(only), folder / "out.db")
    assert content(folder / "out.db") == expected
