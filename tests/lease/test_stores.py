"""Leases in every store: memory, a folder, a real S3 server, and a bucket of a real nats-server."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from strandline.errors import InvalidInput
from strandline.kv import AnswerLost, BucketNotFound, MemoryConnection, NotSupported, StoreConfig
from strandline.kv.nats import NatsConnection
from strandline.lease import (
    BucketLeaseStore,
    Claimant,
    InvalidLease,
    Lease,
    LeaseDamaged,
    LeaseStore,
    LeaseTiming,
    ObjectLeaseStore,
    open_lease_store,
)
from strandline.nats import NatsSettings
from strandline.objects import InvalidAddress, InvalidObjectKey, MemoryObjects
from strandline.testing import LEASE_STORE_CHECKS, LeaseStoreCheck, run_lease_store_check
from tests.lease.buckets import make_bucket
from tests.lease.candidates import KEY, TTL_S, ElapsedTime, epoch_of
from tests.servers_nats import NatsServer, fresh_bucket, running_nats
from tests.servers_seaweed import SeaweedServer, fresh_address
from tests.waiting import PATIENCE_S, eventually

TIMING = LeaseTiming(TTL_S)
Opener = Callable[[], LeaseStore]


@pytest.fixture(params=["memory", "folder", "seaweed", "nats"])
def opener(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    nats_server: NatsServer,
    seaweed_server: SeaweedServer,
) -> Opener:
    """Return what opens one place again and again."""
    if request.param == "nats":
        bucket = fresh_bucket()
        make_bucket(nats_server, bucket)
        return lambda: open_lease_store(f"{nats_server.url}/{bucket}/orders.lease")
    if request.param == "seaweed":
        for name, value in seaweed_server.environ.items():
            monkeypatch.setenv(name, value)
        address = fresh_address()
    else:
        address = tmp_path.as_uri()
    if request.param == "memory":
        objects = MemoryObjects()
        return lambda: ObjectLeaseStore(objects, KEY)
    return lambda: open_lease_store(address, KEY)


@pytest.mark.parametrize("check", LEASE_STORE_CHECKS, ids=lambda check: check.__name__)
def test_every_store_keeps_the_contract(check: LeaseStoreCheck, opener: Opener) -> None:
    run_lease_store_check(check, opener)


def test_a_lease_is_claimed_renewed_stolen_and_released(opener: Opener) -> None:
    time = ElapsedTime()
    first, second = (Claimant(opener(), name, timing=TIMING, now_ns=time) for name in "ab")
    assert first.claim() is not None
    time.advance(5)
    assert first.renew() is not None
    assert second.claim() is None
    time.advance(TTL_S)
    assert second.claim() is not None
    assert first.tenure is None
    assert not first.release()
    assert second.release()
    assert first.claim() is not None
    assert epoch_of(first) == 3
    for candidate in (first, second):
        candidate.store.close()


def test_of_many_who_claim_at_once_one_wins(opener: Opener) -> None:
    time = ElapsedTime()
    candidates = [Claimant(opener(), str(number), timing=TIMING, now_ns=time) for number in range(4)]
    for turn in range(1, 4):
        barrier = threading.Barrier(len(candidates))

        def claim(candidate: Claimant, barrier: threading.Barrier = barrier) -> None:
            barrier.wait(PATIENCE_S)
            candidate.claim()

        threads = [threading.Thread(target=claim, args=(candidate,)) for candidate in candidates]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert sorted(map(epoch_of, candidates)) == [0, 0, 0, turn]
        for candidate in candidates:
            candidate.look()
        time.advance(TTL_S)


class TestABucket:
    def test_that_drops_current_values_is_refused(self, nats_server: NatsServer, nats_bucket: str) -> None:
        make_bucket(nats_server, nats_bucket, StoreConfig(age_max_s=60))
        with pytest.raises(InvalidLease, match="may drop the current value"):
            open_lease_store(f"{nats_server.url}/{nats_bucket}", "lease")

    def test_that_does_not_exist_is_said(self, nats_server: NatsServer, nats_bucket: str) -> None:
        with pytest.raises(BucketNotFound):
            open_lease_store(f"{nats_server.url}/{nats_bucket}/lease")

    def test_that_cannot_be_written_is_refused(self) -> None:
        connection = MemoryConnection(write=False)
        with pytest.raises(BucketNotFound):
            BucketLeaseStore(connection, "leases", "lease")
        connection = MemoryConnection(write=False)

        async def make() -> None:
            await connection.connect()
            await connection.store("leases", StoreConfig())

        asyncio.run(make())
        with pytest.raises(NotSupported, match="compare-and-swap"):
            BucketLeaseStore(connection, "leases", "lease")

    def test_whose_answer_is_lost_is_read_back(self) -> None:
        connection = MemoryConnection()

        async def make() -> None:
            await connection.connect()
            await connection.store("leases", StoreConfig())

        asyncio.run(make())
        store = BucketLeaseStore(connection, "leases", "orders.lease")
        candidate = Claimant(store, "a", timing=TIMING, now_ns=ElapsedTime())
        connection.faults.fail("create", AnswerLost("orders.lease"), after=True)
        assert candidate.claim() is not None
        connection.faults.fail("update", AnswerLost("orders.lease"), after=True)
        assert candidate.renew() is not None
        assert connection.faults.calls["create"] + connection.faults.calls["update"] == 2
        store.close()
        store.close()

    def test_of_a_server_that_is_restarted_keeps_its_holder(self) -> None:
        timing = LeaseTiming(ttl_s=600, renew_s=0.1, margin_s=1, poll_s=0.1)
        with running_nats() as server:
            make_bucket(server, "leases")
            store = open_lease_store(f"{server.url}/leases/orders", nats=NatsSettings(server.url, timeout_s=1))
            lease = Lease(store, "a", timing=timing)
            fence = lease.acquire()
            server.kill()
            eventually(lambda: lease.health().failures > 0, "a renewal fails")
            server.start()
            eventually(lambda: lease.health().failures == 0, "it is renewed again")
            assert lease.check(fence) == fence
            server.kill()
            lease.close()

    def test_with_another_value_under_the_key_is_left_alone(self, nats_server: NatsServer, nats_bucket: str) -> None:
        async def put() -> None:
            async with NatsConnection(nats_server.url) as connection:
                writer = (await connection.store(nats_bucket, StoreConfig())).writer()
                assert writer is not None
                await writer.put("lease", b"something else")

        asyncio.run(put())
        store = open_lease_store(f"{nats_server.url}/{nats_bucket}/lease")
        with pytest.raises(LeaseDamaged):
            Claimant(store, "a").claim()
        store.close()


@pytest.mark.parametrize(
    ("address", "key", "error"),
    [
        ("file:///tmp/x", None, InvalidLease),
        ("file:///tmp/x", "/lease", InvalidObjectKey),
        ("ftp://host/x", "lease", InvalidAddress),
        ("nats://127.0.0.1:1", None, InvalidLease),
        ("nats://127.0.0.1:1/bucket", None, InvalidLease),
        ("nats://127.0.0.1:1/bucket/key/more", None, InvalidLease),
        ("nats://127.0.0.1:1/bucket/key", "key", InvalidLease),
    ],
)
def test_an_address_that_names_no_lease_is_refused(address: str, key: str | None, error: type[InvalidInput]) -> None:
    with pytest.raises(error) as raised:
        open_lease_store(address, key)
    assert raised.value.hint
