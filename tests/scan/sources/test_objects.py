"""A bucket is scanned by its listing: what is unchanged is never fetched, what is gone or refused is said."""

import json
import threading
import uuid
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from strandline.errors import InvalidInput
from strandline.objects import MemoryObjects, Object, ObjectStore, StoreRefused, StoreUnavailable, open_objects
from strandline.pipeline.ledger import DoneStatus
from strandline.scan.path_globs import parse_globs
from strandline.scan.sources import InputMissing, InputUnusable, ItemProblem, ObjectSource, Problem
from strandline.scan.sources import objects as objects_module
from strandline.scan.sources.s3_inventory import S3Inventory
from tests.scan.sources.helpers import contents, left_out, listed, locators, problems
from tests.scan.sources.inventories import ROWS, WRITERS, as_csv, deliver
from tests.scan.threaded_workers import ThreadWorkers, made, request_for, scanned


@pytest.fixture
def address() -> str:
    return f"memory://{uuid.uuid4().hex}"


@pytest.fixture
def store(address: str) -> ObjectStore:
    return open_objects(address)


@pytest.fixture
def state(tmp_path: Path) -> str:
    return made(str(tmp_path / "pipeline.db"))


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys of all objects that were fetched."""
    keys: list[str] = []
    whole = MemoryObjects.get

    def get(self: MemoryObjects, key: str, **more: Any) -> Object | None:  # noqa: ANN401
        keys.append(key)
        return whole(self, key, **more)

    monkeypatch.setattr(MemoryObjects, "get", get)
    return keys


def test_a_prefix_has_the_items_of_its_bucket(address: str, store: ObjectStore) -> None:
    for key in ("a", "logs/b", "logs/deep/c", "logsand/d"):
        store.put(key, key.encode())
    whole = ObjectSource.at(address)
    assert contents(whole) == {key.encode(): [key.encode()] for key in ("a", "logs/b", "logs/deep/c", "logsand/d")}
    part = ObjectSource.at(f"{address}/logs")
    assert contents(part) == {b"logs/b": [b"logs/b"], b"logs/deep/c": [b"logs/deep/c"]}
    assert contents(ObjectSource.at(f"{address}/logs/deep/c")) == {b"logs/deep/c": [b"logs/deep/c"]}
    with pytest.raises(InputMissing):
        listed(ObjectSource.at(f"{address}/log"))
    assert (part.instance, part.is_part, whole.is_part) == (whole.instance, True, False)
    assert {row["version"] for row in listed(whole)} == {
        b"etag:%s:%d" % (info.etag.strip('"').encode(), info.size) for info in store.list()
    }


def test_empty_and_excluded_objects_are_counted_and_large_ones_are_a_problem(address: str, store: ObjectStore) -> None:
    for key, size in {"empty": 0, "ours.pem": 3, "small": 10, "large": 11}.items():
        store.put(key, b"x" * size)
    source = ObjectSource.at(address, excludes=parse_globs("*.pem"), size_max=10)
    assert locators(source) == [b"large", b"small"]
    assert problems(source) == {b"large": Problem.TOO_LARGE}
    assert left_out(source) == {"empty": 1, "excluded": 1}


def test_an_unchanged_object_is_never_fetched_again(
    address: str, store: ObjectStore, state: str, fetched: list[str]
) -> None:
    for number in range(20):
        store.put(f"f{number:02}", b"alpha_%03d" % number)
    request = request_for(state, ObjectSource.at(address))
    assert len(scanned(request).findings) == 20
    assert sorted(fetched) == [f"f{number:02}" for number in range(20)], "each object is fetched once"
    fetched.clear()
    store.put("f07", b"beta_777")
    scanned(request)
    assert fetched == ["f07"]
    fetched.clear()
    workers = ThreadWorkers()
    scanned(request, workers)
    assert (fetched, workers.started) == ([], 0)


def test_an_object_that_is_gone_when_it_is_read_is_said(
    address: str, store: ObjectStore, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("a", b"alpha_001")
    store.put("b", b"alpha_002")
    source = ObjectSource.at(address)
    whole = ObjectSource._rows  # noqa: SLF001 - the moment between listing and reading

    def rows(self: ObjectSource, counts: Any) -> Any:  # noqa: ANN401
        found = list(whole(self, counts))
        store.delete("b")
        return iter(found)

    monkeypatch.setattr(ObjectSource, "_rows", rows)
    outcome = scanned(request_for(state, source))
    assert outcome.codes == {Problem.VANISHED: 1}
    assert outcome.statuses[DoneStatus.FAILED_RETRYABLE] == 1
    assert not outcome.is_whole


def test_an_object_that_was_replaced_after_its_listing_is_scanned_as_it_is_now(
    address: str, store: ObjectStore, state: str, monkeypatch: pytest.MonkeyPatch, fetched: list[str]
) -> None:
    store.put("a", b"alpha_001")
    source = ObjectSource.at(address)
    whole = ObjectSource._rows  # noqa: SLF001 - the moment between listing and reading

    def rows(self: ObjectSource, counts: Any) -> Any:  # noqa: ANN401
        found = list(whole(self, counts))
        store.put("a", b"beta_002 beta_003")
        return iter(found)

    with monkeypatch.context() as patch:
        patch.setattr(ObjectSource, "_rows", rows)
        assert len(scanned(request_for(state, source)).findings) == 2
    fetched.clear()
    outcome = scanned(request_for(state, source))
    assert (len(outcome.findings), fetched) == (2, []), "its version of then is known"


def test_an_object_that_the_login_may_not_read_is_a_problem_of_its_own(
    address: str, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("a", b"text")
    source = ObjectSource.at(address)

    def refuse(error: Exception) -> None:
        def get(*_: object, **__: object) -> None:
            raise error

        monkeypatch.setattr(MemoryObjects, "get", get)

    with source.open() as reader:
        refuse(StoreRefused(address, "403 (InvalidObjectState)"))
        with pytest.raises(ItemProblem) as refused:
            reader.read(b"a", None)
        assert refused.value.code is Problem.PERMISSION_DENIED
        refuse(StoreUnavailable(address, "no answer"))
        with pytest.raises(StoreUnavailable):  # not a problem of the item: the scan ends, and resumes
            reader.read(b"a", None)


def test_objects_are_fetched_at_once_before_they_are_read(
    address: str, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = threading.Barrier(4)
    whole = MemoryObjects.get

    def get(self: MemoryObjects, key: str, **more: Any) -> Object | None:  # noqa: ANN401
        together.wait(60)  # breaks unless four are fetched at one time
        return whole(self, key, **more)

    for key in "abcd":
        store.put(key, key.encode())
    monkeypatch.setattr(MemoryObjects, "get", get)
    with ObjectSource.at(address).open() as reader:
        assert isinstance(reader, objects_module.ObjectReader)
        reader.expect([(key.encode(), 1) for key in "abcd"])
        assert [next(iter(reader.read(key.encode(), None).parts)).data for key in "abcd"] == [b"a", b"b", b"c", b"d"]


def test_no_more_is_fetched_ahead_than_the_bound(
    address: str, store: ObjectStore, monkeypatch: pytest.MonkeyPatch, fetched: list[str]
) -> None:
    monkeypatch.setattr(objects_module, "AHEAD_BYTES_MAX", 100)
    for number in range(9):
        store.put(f"f{number}", b"x" * 40)
    with ObjectSource.at(address).open() as reader:
        assert isinstance(reader, objects_module.ObjectReader)
        reader.expect([(b"f%d" % number, 40) for number in range(9)])
        reader.read(b"f0", None)
        reader.expect([(b"f%d" % number, 40) for number in range(1, 9)])
    assert set(fetched) <= {"f0", "f1", "f2"}
    assert fetched.count("f1") == 1, "what was begun is not fetched twice"


def test_objects_are_fetched_ahead_until_the_last_one_is_read(
    address: str, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that was announced, however much more it is than the bound; the rest of memory stays free."""
    monkeypatch.setattr(objects_module, "AHEAD_BYTES_MAX", 100)
    fetchers: list[str] = []
    whole = MemoryObjects.get

    def get(self: MemoryObjects, key: str, **more: Any) -> Object | None:  # noqa: ANN401
        fetchers.append(threading.current_thread().name)
        return whole(self, key, **more)

    monkeypatch.setattr(MemoryObjects, "get", get)
    keys = [b"f%02d" % number for number in range(30)]
    for number, key in enumerate(keys):
        store.put(key.decode(), b"x" * (250 if number == 7 else 40))
    with ObjectSource.at(address).open() as reader:
        assert isinstance(reader, objects_module.ObjectReader)
        reader.expect([(key, 250 if number == 7 else 40) for number, key in enumerate(keys)])
        for number, key in enumerate(keys):
            assert len(fetchers) <= number + 2, "two of them are within the bound"
            assert len(reader.read(key, None).parts[0].data) == (250 if number == 7 else 40)  # type: ignore[index]
    assert len(fetchers) == 30
    assert all(name.startswith("strandline-fetch") for name in fetchers)


# S3 Inventory


@pytest.mark.parametrize("form", WRITERS)
def test_an_inventory_lists_the_latest_versions(form: str, store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = deliver(store, form, ROWS, WRITERS[form])
    monkeypatch.setattr(objects_module, "opened", lambda _: nullcontext(store))
    source = ObjectSource.at("s3://source/logs", inventory=f"s3://reports/{manifest}")
    assert [(row["locator"].decode(), row["version"], row["size"]) for row in listed(source)] == [
        ("logs/a b+c.txt", b"etag:e1:9", 9),
        ("logs/é.txt", b"etag:e2-3:11", 11),
    ]
    assert left_out(source) == {"older versions": 1, "delete markers": 1, "outside the prefix": 1}
    with pytest.raises(InvalidInput, match="lists s3://source, not s3://else"):
        listed(ObjectSource.at("s3://else", inventory=f"s3://reports/{manifest}"))


def test_an_inventory_and_a_listing_name_the_same_scan() -> None:
    plain = ObjectSource.at("s3://source/logs")
    assert plain.plain() == ObjectSource.at("s3://source/logs", inventory="s3://reports/x/manifest.json").plain()


def test_what_is_no_inventory_or_not_whole_is_refused(store: ObjectStore) -> None:
    manifest = deliver(store, "CSV", ROWS, as_csv)
    for key, body, said in (
        ("text", b"hello", "not the manifest"),
        ("json", b"[1]", "not the manifest"),
        ("avro", json.dumps({"fileFormat": "Avro"}).encode(), "'Avro'"),
    ):
        store.put(key, body)
        with pytest.raises(InputUnusable, match=said):
            S3Inventory.read(store, key)
    with pytest.raises(InputMissing):
        S3Inventory.read(store, "nothing/manifest.json")
    inventory = S3Inventory.read(store, manifest)
    store.put(inventory.files[1].key, as_csv(ROWS[:1]))
    with pytest.raises(InputUnusable, match="checksum"):
        list(inventory.objects(store, Counter()))


def test_objects_of_an_inventory_that_are_gone_are_said_and_all_others_are_scanned(
    store: ObjectStore, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("logs/a b+c.txt", b"alpha_001")
    manifest = deliver(store, "Parquet", ROWS, WRITERS["Parquet"])
    monkeypatch.setattr(objects_module, "opened", lambda _: nullcontext(store))
    source = ObjectSource.at("s3://source/logs", inventory=f"s3://reports/{manifest}")
    outcome = scanned(request_for(state, source))
    assert (outcome.codes, len(outcome.findings)) == ({Problem.VANISHED: 1}, 1)
    assert outcome.statuses[DoneStatus.FAILED_RETRYABLE] == 1
    assert not outcome.is_whole
    store.put("logs/é.txt", b"alpha_002")
    assert len(scanned(request_for(state, source)).findings) == 2, "once it is back it is scanned"
