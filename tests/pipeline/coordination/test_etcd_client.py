"""The synchronous face of etcd, over a real one: what it answers, and what it says when there is no answer."""

import os
import pickle
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import grpc  # type: ignore[import-untyped] # ships no type information
import pytest

from strandline.errors import Closed, InvalidInput, StrandlineError, Unavailable, UnknownOutcome
from strandline.pipeline.coordination.etcd_client import (
    OPERATIONS_MAX,
    EtcdClient,
    LeaseGone,
    absent,
    delete,
    etcd_error,
    lease_is,
    present,
    put,
    unchanged,
    value_is,
)
from tests.pipeline.coordination.rivals import at_once, insisted
from tests.servers_etcd import EtcdServer, connected, running_etcd
from tests.waiting import PATIENCE_S, eventually

FORK_WARNS = "ignore:.*multi-threaded:DeprecationWarning"  # what Python 3.12 says of every fork here


@pytest.fixture
def client(etcd_server: EtcdServer) -> Iterator[EtcdClient]:
    with connected(etcd_server.endpoint) as client:
        yield client


@pytest.fixture
def key(etcd_prefix: str) -> bytes:
    return etcd_prefix.encode() + b"/key"


def test_a_transaction_is_done_only_if_all_conditions_hold(client: EtcdClient, key: bytes) -> None:
    assert client.transact([absent(key)], [put(key, b"one")])
    (there,) = client.get(key)
    assert there is not None
    assert (there.value, there.lease) == (b"one", 0)
    holding = [present(key), unchanged(key, there.mod_revision), value_is(key, b"one"), lease_is(key, 0)]
    failing = [absent(key), unchanged(key, there.mod_revision + 1), value_is(key, b"two"), lease_is(key, 7)]
    for condition in failing:
        assert not client.transact([*holding, condition], [put(key, b"two")])
    assert client.get(key) == [there]
    assert client.transact(holding, [delete(key)])
    assert client.get(key) == [None]


def test_several_keys_are_read_at_once_in_the_order_asked(client: EtcdClient, key: bytes) -> None:
    client.transact([], [put(key + b"a", b"1"), put(key + b"b", b"2")])
    values = [found and found.value for found in client.get(key + b"b", key, key + b"a", key + b"b")]
    assert values == [b"2", None, b"1", b"2"]


def test_a_range_is_cut_at_its_limit_and_its_end(client: EtcdClient, key: bytes) -> None:
    client.transact([], [put(key + b"%d" % n, b"v") for n in range(5)])
    page = client.range(key + b"1", key + b"4", 2)
    assert [found.key[-1:] for found in page.found] == [b"1", b"2"]
    assert page.more
    client.transact([], [put(key + b"3", b"later")])
    rest = client.range(key + b"3", key + b"9", 9, page.revision)
    assert [found.value for found in rest.found] == [b"v", b"v"]
    assert (rest.revision, rest.more) == (page.revision, False)


def test_keys_live_and_die_with_their_lease(client: EtcdClient, key: bytes) -> None:
    lease = client.grant(60)
    client.transact([], [put(key, b"v", lease)])
    assert client.transact([lease_is(key, lease)], [])
    assert client.keep_alive(lease)
    client.revoke(lease)
    assert client.get(key) == [None]
    assert not client.keep_alive(lease)
    client.revoke(lease)  # to end it again is no error
    with pytest.raises(LeaseGone):
        client.transact([], [put(key, b"v", lease)])
    assert client.get(key) == [None]


def test_what_etcd_never_accepts_is_invalid(client: EtcdClient, key: bytes) -> None:
    client.transact([], [put(key + b"%d" % n, b"v") for n in range(OPERATIONS_MAX)])
    with pytest.raises(InvalidInput, match="too many operations"):
        client.transact([], [put(key + b"%d" % n, b"v") for n in range(OPERATIONS_MAX + 1)])
    with pytest.raises(InvalidInput, match="too large"):
        client.transact([], [put(key, bytes(2_000_000))])


def test_values_and_keys_are_not_shown(client: EtcdClient, key: bytes) -> None:
    client.transact([], [put(key, b"token")])
    assert "token" not in repr(client.get(key))
    assert "key" not in repr(client.get(key))


def test_nobody_listening_is_told_within_the_time_to_connect() -> None:
    began = time.monotonic()
    with pytest.raises(Unavailable, match="does not answer") as told:
        EtcdClient("127.0.0.1:1", connect_timeout_s=0.2)
    assert time.monotonic() - began < PATIENCE_S
    assert told.value.hint
    assert told.value.retryable
    assert str(pickle.loads(pickle.dumps(told.value))) == str(told.value)  # noqa: S301 - our own bytes


def test_a_closed_client_says_so(etcd_server: EtcdServer, key: bytes) -> None:
    client = connected(etcd_server.endpoint)
    client.close()
    client.close()
    for call in (lambda: client.get(key), lambda: client.transact([], []), lambda: client.grant(1)):
        with pytest.raises(Closed):
            call()


@contextmanager
def forked(work: Callable[[], bool]) -> Iterator[None]:
    """Do something in a child while the body does something here; the child's must come out true."""
    child = os.fork()
    if child == 0:
        done = False
        try:
            done = work()
        finally:
            os._exit(0 if done else 1)
    yield
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.filterwarnings(FORK_WARNS)
def test_a_child_of_fork_has_a_connection_of_its_own(client: EtcdClient, key: bytes) -> None:
    def work(name: bytes) -> bool:
        return all(client.transact([], [put(key + name, b"%d" % number)]) for number in range(100))

    assert work(b"before")
    with forked(lambda: work(b"child") and client._link.pid == os.getpid()):  # noqa: SLF001 - whose it is
        assert work(b"parent")
    assert [found and found.value for found in client.get(key + b"child", key + b"parent")] == [b"99", b"99"]


@pytest.mark.filterwarnings(FORK_WARNS)
def test_a_child_of_fork_that_closes_its_client_leaves_the_parent_s_open(client: EtcdClient, key: bytes) -> None:
    def close() -> bool:
        client.close()
        try:
            client.get(key)
        except Closed:
            return True
        return False

    with forked(close):
        pass
    assert client.get(key) == [None]


def test_a_transaction_that_is_not_answered_is_unknown(key: bytes) -> None:
    with running_etcd() as server, EtcdClient(server.endpoint, timeout_s=0.3, connect_timeout_s=PATIENCE_S) as client:
        with server.frozen():
            with pytest.raises(UnknownOutcome, match="did not answer") as told:
                client.transact([absent(key)], [put(key, b"v")])
            for look in (lambda: client.get(key), lambda: client.grant(5), lambda: client.keep_alive(5)):
                with pytest.raises(Unavailable):
                    look()
        assert told.value.hint
        assert insisted(lambda: client.transact([], [put(key, b"v")]), time.monotonic() + PATIENCE_S)


class Refused(grpc.RpcError):  # type: ignore[misc] # gRPC ships no type information
    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        self.code, self.details = lambda: code, lambda: details


@pytest.mark.parametrize(
    ("code", "details", "looked", "changed"),
    [
        ("UNAVAILABLE", "failed to connect to all addresses", Unavailable, Unavailable),
        ("UNAVAILABLE", "Socket closed", Unavailable, UnknownOutcome),
        ("UNAVAILABLE", "etcdserver: request timed out", Unavailable, UnknownOutcome),
        ("UNAVAILABLE", "etcdserver: leader changed", Unavailable, UnknownOutcome),
        ("DEADLINE_EXCEEDED", "Deadline Exceeded", Unavailable, UnknownOutcome),
        ("CANCELLED", "", Unavailable, UnknownOutcome),
        ("INTERNAL", "", Unavailable, UnknownOutcome),
        ("UNKNOWN", "", Unavailable, UnknownOutcome),
        ("RESOURCE_EXHAUSTED", "etcdserver: mvcc: database space exceeded", Unavailable, Unavailable),
        ("PERMISSION_DENIED", "etcdserver: permission denied", Unavailable, Unavailable),
        ("UNAUTHENTICATED", "etcdserver: invalid auth token", Unavailable, Unavailable),
        ("OUT_OF_RANGE", "etcdserver: mvcc: required revision has been compacted", Unavailable, UnknownOutcome),
        ("INVALID_ARGUMENT", "etcdserver: request is too large", InvalidInput, InvalidInput),
        ("NOT_FOUND", "etcdserver: requested lease not found", LeaseGone, LeaseGone),
    ],
)
def test_only_what_was_certainly_not_done_is_told_as_not_done(
    code: str, details: str, looked: type[StrandlineError], changed: type[StrandlineError]
) -> None:
    error = Refused(grpc.StatusCode[code], details)
    for changes, kind in ((False, looked), (True, changed)):
        told = etcd_error(error, "127.0.0.1:2379", changes=changes)
        assert type(told) is kind
        assert told.hint or kind is InvalidInput


def test_a_killed_etcd_leaves_transactions_in_flight_unknown_and_refuses_the_rest() -> None:
    writers = range(8)
    told: Counter[tuple[int, str]] = Counter()
    enough = threading.Event()

    def times(what: str) -> list[int]:
        return [told[number, what] for number in writers]

    with running_etcd() as server, connected(server.endpoint) as client:

        def write(number: int) -> None:
            while not enough.is_set():
                try:
                    client.transact([], [put(b"/%d" % number, b"v")])
                    told[number, "done"] += 1
                except (Unavailable, UnknownOutcome) as error:
                    told[number, type(error).__name__] += 1
                    time.sleep(0.01)

        def kill() -> None:
            try:
                eventually(lambda: all(times("done")), "all of them write")
                server.kill()
                eventually(lambda: all(times("Unavailable")), "all of them are refused")
                assert max(times("UnknownOutcome")) <= 1, "that was in flight"
                with pytest.raises(Unavailable):
                    client.get(b"/0")
                server.start()
                before = sum(times("done"))
                eventually(lambda: sum(times("done")) > before, "one of them writes again")
            finally:
                enough.set()

        at_once(len(writers), write, kill)
