"""Every store keeps the contract: memory, with and without retries, a folder, and a bucket of a real S3 server."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from strandline.objects import LocalObjects, MemoryObjects, ObjectStore, RetryingObjects, open_objects
from strandline.testing import OBJECT_STORE_CHECKS, ObjectStoreCheck, run_object_store_check
from tests.servers_seaweed import SeaweedServer, fresh_address

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


@pytest.mark.parametrize("check", OBJECT_STORE_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("opener", [memory, retried, local], ids=lambda opener: opener.__name__)
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
