"""A small synchronous client for etcd: plain values, a timeout for every call, our errors.

Invariants: a read, or a call that may be repeated without harm, fails as `Unavailable`; a transaction whose
answer was lost fails as `UnknownOutcome` unless it is certain that it was never sent; a client that went through a fork
opens a connection of its own and leaves its parent's alone. It holds no thread and no event loop: it calls aetcd's
generated stubs over gRPC's blocking channel. Messages name no key and no value.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from strandline.errors import Closed, InvalidInput, StrandlineError, Unavailable, UnknownOutcome
from strandline.lazy_imports import deferred

if TYPE_CHECKING:
    import grpc  # type: ignore[import-untyped] # ships no type information
    from aetcd import rpc  # type: ignore[import-untyped] # the same
else:
    grpc, rpc = deferred("grpc", "etcd"), deferred("aetcd.rpc", "etcd")

TIMEOUT_S = 5.0
OPERATIONS_MAX = 128
"""The number of operations that etcd allows in a transaction (`--max-txn-ops`)."""

Compare = Any
"""A condition of a transaction, made by `absent`, `present`, `unchanged`, `value_is` or `lease_is`."""
Operation = Any
"""A change of a transaction, made by `put` or `delete`."""


class KeyValue(NamedTuple):
    """A key with its value, revision and lease."""

    key: bytes
    value: bytes
    mod_revision: int
    lease: int
    """The etcd lease of the key; 0 if none."""

    def __repr__(self) -> str:
        return f"KeyValue({len(self.value)} bytes, mod_revision={self.mod_revision}, lease={self.lease})"


class Page(NamedTuple):
    """Keys of a range, the revision that they are as of, and whether more follow."""

    found: list[KeyValue]
    revision: int
    more: bool


class LeaseGone(Unavailable):
    """A transaction put a key on an etcd lease that has ended; nothing was done."""

    def __init__(self) -> None:
        super().__init__("the etcd lease has ended", hint="acquire the shard again")


class _Link(NamedTuple):
    """A connection and the process that it belongs to."""

    pid: int
    channel: Any
    kv: Any
    lease: Any


# A channel inherited through fork shares its socket with the parent: keep it, unused and open.
_inherited: list[Any] = []


class EtcdClient:
    """A connection to etcd at `host:port`, or at any target that gRPC knows; safe to use from several threads.

    It may go through a fork as long as gRPC's own support for that is on, as it is by default.
    """

    def __init__(self, endpoint: str, *, timeout_s: float = TIMEOUT_S, connect_timeout_s: float = TIMEOUT_S) -> None:
        self._endpoint = endpoint
        self._timeout_s = timeout_s
        self._connect_timeout_s = connect_timeout_s
        self._closed = False
        self._unanswered: set[Any] = set()
        self._link = self._connected()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; closing it twice is harmless."""
        self._closed = True
        if self._link.pid == os.getpid():
            self._link.channel.close()

    def get(self, *keys: bytes) -> list[KeyValue | None]:
        """Return the values of some keys, all at one revision and in their order; None for a missing key."""
        ranges = [rpc.RangeRequest(key=key) for key in keys]
        if len(ranges) <= 1:
            return [_first(self._ask("Range", each)) for each in ranges]
        request = rpc.TxnRequest(success=[rpc.RequestOp(request_range=each) for each in ranges])
        return [_first(response.response_range) for response in self._ask("Txn", request).responses]

    def range(self, start: bytes, end: bytes, limit: int, revision: int = 0) -> Page:
        """Return up to `limit` keys of [start, end) in their order, as of a revision, or as of now if that is 0."""
        found = self._ask("Range", rpc.RangeRequest(key=start, range_end=end, limit=limit, revision=revision))
        return Page([_key_value(kv) for kv in found.kvs], revision or found.header.revision, found.more)

    def transact(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> bool:
        """Do all operations at once if all conditions hold, and return whether they did."""
        request = rpc.TxnRequest(compare=compares, success=operations)
        return bool(self._ask("Txn", request, changes=True).succeeded)

    def grant(self, ttl_s: int) -> int:
        """Grant an etcd lease and return its id."""
        # An answer that is lost costs nothing: an unknown lease ends by itself.
        return int(self._ask("LeaseGrant", rpc.LeaseGrantRequest(TTL=ttl_s)).ID)

    def keep_alive(self, lease: int) -> bool:
        """Renew an etcd lease; False if it has ended."""
        replies = self._ask("LeaseKeepAlive", iter([rpc.LeaseKeepAliveRequest(ID=lease)]))
        try:
            return any(reply.TTL > 0 for reply in replies)
        except grpc.RpcError as error:
            raise etcd_error(error, self._endpoint, changes=False) from error
        finally:
            replies.cancel()

    def revoke(self, lease: int) -> None:
        """Revoke an etcd lease, which removes its keys; a lease that has ended is no error."""
        with suppress(LeaseGone):
            self._ask("LeaseRevoke", rpc.LeaseRevokeRequest(ID=lease))

    def _ask(self, method: str, request: Any, *, changes: bool = False) -> Any:  # noqa: ANN401 - generated messages
        if self._closed:
            raise Closed("the etcd client")
        if self._link.pid != os.getpid():
            _inherited.append(self._link)
            self._link = self._connected()
        call = getattr(self._link.lease if method.startswith("Lease") else self._link.kv, method)
        try:
            if method == "Txn" and not changes:
                return self._answer(call.future(request))
            return call(request, timeout=self._timeout_s)
        except grpc.RpcError as error:
            raise etcd_error(error, self._endpoint, changes=changes) from error
        except ValueError as error:  # what gRPC raises when another thread closed the channel
            raise Closed("the etcd client") from error

    def _answer(self, call: Any) -> Any:  # noqa: ANN401 - gRPC ships no type information
        """Return the answer of a transaction that only reads.

        An etcd before 3.5.7 ends when such a call is cancelled or its deadline passes on the way (etcd's issues 14110
        and 14891). It has no deadline, then, and a call that is not waited for any longer is kept until it is answered:
        gRPC cancels one that nothing refers to.
        """
        try:
            return call.result(timeout=self._timeout_s)
        except grpc.FutureTimeoutError as error:
            self._unanswered.add(call)
            call.add_done_callback(self._unanswered.discard)
            raise Unavailable(f"etcd at {self._endpoint} does not answer in {self._timeout_s:g} s") from error

    def _connected(self) -> _Link:
        channel = grpc.insecure_channel(self._endpoint, options=_channel_options(self._connect_timeout_s))
        link = _Link(os.getpid(), channel, rpc.KVStub(channel), rpc.LeaseStub(channel))
        try:
            link.kv.Range(rpc.RangeRequest(key=b"\0"), timeout=self._connect_timeout_s, wait_for_ready=True)
        except grpc.RpcError as error:
            channel.close()
            raise etcd_error(error, self._endpoint, changes=False) from error
        return link


def absent(key: bytes) -> Compare:
    """Require that the key does not exist."""
    return rpc.Compare(key=key, target=rpc.Compare.VERSION, result=rpc.Compare.EQUAL, version=0)


def present(key: bytes) -> Compare:
    """Require that the key exists."""
    return rpc.Compare(key=key, target=rpc.Compare.VERSION, result=rpc.Compare.GREATER, version=0)


def unchanged(key: bytes, mod_revision: int) -> Compare:
    """Require that the key was not written since the read."""
    return rpc.Compare(key=key, target=rpc.Compare.MOD, result=rpc.Compare.EQUAL, mod_revision=mod_revision)


def value_is(key: bytes, value: bytes) -> Compare:
    """Demand a value."""
    return rpc.Compare(key=key, target=rpc.Compare.VALUE, result=rpc.Compare.EQUAL, value=value)


def lease_is(key: bytes, lease: int) -> Compare:
    """Require that the key is attached to an etcd lease."""
    return rpc.Compare(key=key, target=rpc.Compare.LEASE, result=rpc.Compare.EQUAL, lease=lease)


def put(key: bytes, value: bytes, lease: int = 0) -> Operation:
    """Set a key, attached to an etcd lease unless that is 0."""
    return rpc.RequestOp(request_put=rpc.PutRequest(key=key, value=value, lease=lease))


def delete(key: bytes) -> Operation:
    """Remove a key, if it is there."""
    return rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=key))


def _key_value(kv: Any) -> KeyValue:  # noqa: ANN401 - a generated message
    return KeyValue(kv.key, kv.value, kv.mod_revision, kv.lease)


def _first(response: Any) -> KeyValue | None:  # noqa: ANN401 - a generated message
    return _key_value(response.kvs[0]) if response.kvs else None


def _channel_options(connect_timeout_s: float) -> list[tuple[str, int]]:
    return [
        ("grpc.use_local_subchannel_pool", 1),  # clients share no socket, so that closing one closes its own
        ("grpc.initial_reconnect_backoff_ms", 50),
        ("grpc.max_reconnect_backoff_ms", 1000),
        ("grpc.min_reconnect_backoff_ms", int(connect_timeout_s * 1000)),
        ("grpc.max_receive_message_length", -1),  # a page of large records passes gRPC's 4 MiB
    ]


_NEVER_SENT = "failed to connect to all addresses"
_REFUSED = {"PERMISSION_DENIED", "UNAUTHENTICATED"}
_CERTAIN = _REFUSED | {"RESOURCE_EXHAUSTED", "FAILED_PRECONDITION"}


def etcd_error(error: Any, endpoint: str, *, changes: bool) -> StrandlineError:  # noqa: ANN401 - gRPC's error is two classes
    """Return the error that tells what became of the call."""
    code, details = error.code(), error.details() or ""
    match code:
        case grpc.StatusCode.NOT_FOUND if "lease" in details:
            return LeaseGone()
        case grpc.StatusCode.INVALID_ARGUMENT:
            return InvalidInput(f"etcd refused the request: {details}")
        case _ if changes and code.name not in _CERTAIN and _NEVER_SENT not in details:
            return UnknownOutcome(
                f"etcd at {endpoint} did not answer a transaction: {code.name}", hint="read back what it wrote"
            )
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return Unavailable(f"etcd at {endpoint} has no room: {details}", hint="compact and defragment etcd")
        case _ if code.name in _REFUSED:
            return Unavailable(f"etcd at {endpoint} denies access: {details}", hint="check its users and roles")
        case _:
            return Unavailable(
                f"etcd at {endpoint} does not answer: {code.name}", hint="check that etcd runs and can be reached"
            )
