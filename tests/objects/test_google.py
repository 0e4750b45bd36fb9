"""`gs://` on a server with what Google documents of its XML API: the contract, and conditions by generation."""

import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from strandline.objects import ConditionsIgnored, ObjectConflict, ObjectStore, open_objects, race_conditions, remote
from strandline.testing import OBJECT_STORE_CHECKS, ObjectStoreCheck, run_object_store_check
from tests.servers_gcs import BUCKET, GoogleServer, running_google_server


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GoogleServer]:
    with running_google_server() as found:
        for name, value in found.environ(tmp_path).items():
            monkeypatch.setenv(name, value)
        yield found


@contextmanager
def opened(*, conditional: bool = True, prefix: str = "") -> Iterator[ObjectStore]:
    address = f"gs://{BUCKET}/{prefix or uuid.uuid4().hex}"
    with closing(open_objects(address, conditional=conditional)) as store:
        yield store


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("check", OBJECT_STORE_CHECKS, ids=lambda check: check.__name__)
def test_the_contract_holds_on_google(check: ObjectStoreCheck) -> None:
    run_object_store_check(check, opened)


@pytest.mark.usefixtures("server")
def test_racing_writers_are_told_apart() -> None:
    with opened() as store:
        race_conditions(store, rounds=5)


@pytest.mark.usefixtures("server")
def test_an_etag_of_another_process_is_a_condition_too() -> None:
    with opened(prefix="one") as first, opened(prefix="one") as second:
        etag = first.put("a", b"1", if_absent=True)
        newer = second.put("a", b"2", if_match=etag)
        with pytest.raises(ObjectConflict, match="written by another"):
            first.put("a", b"3", if_match=etag)
        (info,) = first.list()
        with opened(prefix="one") as third:
            third.put("a", b"4", if_match=info.etag)
            with pytest.raises(ObjectConflict, match="written by another"):
                third.put("a", b"5", if_match=newer)
            with pytest.raises(ObjectConflict, match="missing"):
                third.put("b", b"5", if_match=newer)
        found = first.get("a")
        assert found is not None
        assert found.body == b"4"


def test_a_write_over_what_was_just_seen_is_one_request(server: GoogleServer) -> None:
    with opened() as store:
        etag = store.put("a", b"1")
        found = len(server.methods)
        store.put("a", b"2", if_match=etag)
        assert server.methods[found:] == ["PUT"]


def test_what_is_remembered_of_objects_is_bounded(server: GoogleServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "GENERATIONS_KEPT", 3)
    with opened() as store:
        etags = [store.put(str(number), b"%d" % number) for number in range(5)]
        found = len(server.methods)
        for number, etag in enumerate(etags):
            store.put(str(number), b"again", if_match=etag)
        assert server.methods[found:].count("HEAD") >= 2


def test_the_objects_that_were_seen_last_are_remembered(server: GoogleServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "GENERATIONS_KEPT", 3)
    with opened() as store:
        etags = {key: store.put(key, b"1") for key in "abc"}
        store.head("a")
        store.put("d", b"1")
        found = len(server.methods)
        store.put("a", b"2", if_match=etags["a"])
        assert server.methods[found:] == ["PUT"]


@pytest.mark.parametrize(
    ("ignored", "problem"),
    [("absent", "created an object that exists"), ("generation", "replaced an object whose ETag had changed")],
)
def test_a_server_that_ignores_conditions_is_refused(server: GoogleServer, ignored: str, problem: str) -> None:
    server.ignores = frozenset({ignored})
    with pytest.raises(ConditionsIgnored, match=problem), opened():
        pass
