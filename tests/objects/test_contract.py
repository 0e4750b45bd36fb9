"""Every store keeps the contract: memory, with and without retries, a folder, and a bucket of a real S3 server."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from strandline.objects import KeyRing, LocalObjects, MemoryObjects, ObjectStore, RetryingObjects, open_objects
from strandline.objects.encrypted import EncryptedObjects
from strandline.testing import OBJECT_STORE_CHECKS, ObjectStoreCheck, run_object_store_check
from tests.servers_seaweed import SeaweedServer, fresh_address

RING = KeyRing({"2026-11": bytes(range(32))})
Opener = Callable[[], AbstractContextManager[ObjectStore]]


@contextmanager
def memory() -> Iterator[ObjectStore]:
    yield MemoryObjects()


@contextmanager
def retried() -> Iterator[ObjectStore]:
    yield RetryingObjects(MemoryObjects())


@contextmanager
def local() -> Iterator[ObjectStore]:
    with tempfile.TemporaryDirectory(prefix="objects-") as folder:
        yield LocalObjects(Path(folder))


@contextmanager
def encrypted() -> Iterator[ObjectStore]:
    yield EncryptedObjects(RetryingObjects(MemoryObjects()), RING)


@contextmanager
def encrypted_locally() -> Iterator[ObjectStore]:
    with tempfile.TemporaryDirectory(prefix="objects-") as folder:
        yield EncryptedObjects(LocalObjects(Path(folder)), RING)


@pytest.mark.parametrize("check", OBJECT_STORE_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize(
    "opener", [memory, retried, local, encrypted, encrypted_locally], ids=lambda opener: opener.__name__
)
def test_stores_without_a_server_keep_the_contract(opener: Opener, check: ObjectStoreCheck) -> None:
    run_object_store_check(check, opener)


@pytest.mark.parametrize("check", OBJECT_STORE_CHECKS, ids=lambda check: check.__name__)
def test_a_bucket_of_a_real_server_keeps_the_contract(
    check: ObjectStoreCheck, seaweed_server: SeaweedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in seaweed_server.environ.items():
        monkeypatch.setenv(name, value)

    @contextmanager
    def bucket() -> Iterator[ObjectStore]:
        yield open_objects(fresh_address())

    run_object_store_check(check, bucket)


@pytest.mark.parametrize(
    "check",
    [
        check
        for check in OBJECT_STORE_CHECKS
        if check.__name__.startswith(("ranges_are", "a_stream", "replace_wants", "what_was_put"))
    ],
    ids=lambda check: check.__name__,
)
def test_an_encrypted_bucket_of_a_real_server_keeps_the_contract(
    check: ObjectStoreCheck, seaweed_server: SeaweedServer
) -> None:
    @contextmanager
    def bucket() -> Iterator[ObjectStore]:
        yield open_objects(fresh_address(), environ=seaweed_server.environ, keys=RING)

    run_object_store_check(check, bucket)
