"""What both middlewares share: the decisions of one node about one request, and the answer to a write.

Invariants: a write is answered with a position only after the object store has everything that was committed before the
answer began, under the epoch in which the write was served; otherwise its answer says that the outcome is unknown.
"""

import asyncio
import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple

from strandline.errors import InvalidInput, StrandlineError
from strandline.replica.roles import ReplicaNode, Role
from strandline.replica.routing.answers import PlainAnswer, bad_request, looping, misdirected, not_durable
from strandline.replica.routing.body import RequestBody
from strandline.replica.routing.forwarder import PAUSE_S, ForwardRequest, Place
from strandline.replica.routing.headers import (
    EXPECT_LEADER_HEADER,
    Headers,
    Peer,
    check_hops,
    check_length,
    forwarded_headers,
    get_header,
)
from strandline.replica.routing.limits import RoutingLimits
from strandline.replica.routing.positions import (
    POSITION_HEADER,
    ReadPosition,
    format_cookie,
    format_position,
    wanted_position,
)
from strandline.replica.routing.rules import Decision, Failure, Kind, RoutingRules, decide
from strandline.replica.routing.upstream import RequestHead

ERRORS_FROM = 400
"""Answers from this status on acknowledge nothing, and do not wait for the store."""


class RoutedRequest(NamedTuple):
    """A request as its headers tell of it."""

    kind: Kind
    method: str
    target: bytes
    headers: Headers
    peer: Peer
    wanted: ReadPosition
    expects_leader: bool


@dataclass
class NodeRouting:
    """The routing of one node; `durable` says whether the answer to a write waits for the object store."""

    node: ReplicaNode
    rules: RoutingRules = field(default_factory=RoutingRules)
    limits: RoutingLimits = field(default_factory=RoutingLimits)
    durable: bool = True
    identity: str = field(default_factory=lambda: secrets.token_hex(8))

    def __post_init__(self) -> None:
        self.held = 0
        self._slots = threading.BoundedSemaphore(max(1, self.limits.waiting_max))
        self._threads = ThreadPoolExecutor(max(1, self.limits.waiting_max), thread_name_prefix="strandline-routing")

    def parse(
        self, method: str, path: str, target: bytes, headers: Headers, peer: Peer
    ) -> RoutedRequest | PlainAnswer | None:
        """Return a request to route, None for one that is not routed, or the answer to one that is refused."""
        kind = self.rules.kind_of(method, path)
        if kind is Kind.LOCAL:
            return None
        try:
            wanted = wanted_position(headers, self.rules.cookie)
            check_length(headers)
        except InvalidInput as error:
            return bad_request(error)
        expects_leader = get_header(headers, EXPECT_LEADER_HEADER) is not None
        return RoutedRequest(kind, method, target, headers, peer, wanted, expects_leader)

    def decide(self, request: RoutedRequest) -> Decision:
        """Return what this node does with a request now."""
        return decide(
            request.kind,
            self.node.role,
            wanted=request.wanted,
            position=self.node.position(),
            expects_leader=request.expects_leader,
        )

    async def place(self, request: RoutedRequest) -> Decision:
        """Return whether a request is served here, forwarded or misdirected; wait for that where it pays."""
        decision = self.decide(request)
        if decision is Decision.HOLD and request.expects_leader:
            give_up_s = time.monotonic() + (self.limits.hold_s if self.held < self.limits.held_max else 0.0)
            self.held += 1
            try:
                while decision is Decision.HOLD and time.monotonic() < give_up_s:
                    await asyncio.sleep(PAUSE_S)
                    decision = self.decide(request)
            finally:
                self.held -= 1
            return Decision.MISDIRECTED if decision is Decision.HOLD else decision
        if decision is not Decision.WAIT:
            return decision
        with self._waiting() as may_wait:
            if may_wait:
                loop, wait_s = asyncio.get_running_loop(), self.limits.wait_s
                await loop.run_in_executor(self._threads, self.node.wait_for, request.wanted.txid, wait_s)
        decision = self.decide(request)
        return Decision.FORWARD if decision is Decision.WAIT else decision

    def refusal(self, decision: Decision, request: RoutedRequest) -> PlainAnswer | None:
        """Return the answer to a request that is neither served nor forwarded; None where it is one of them."""
        if decision is Decision.MISDIRECTED:
            return misdirected()
        try:
            check_hops(request.headers, self.identity)
        except InvalidInput as error:
            return looping(error)
        return None

    def forward_request(self, request: RoutedRequest, body: RequestBody) -> ForwardRequest:
        """Return a request as it is sent to the leader."""
        headers = forwarded_headers(request.headers, request.peer, self.identity, to_leader=True)
        return ForwardRequest(request.kind, RequestHead(request.method.encode(), request.target, headers), body)

    def wait_durable(self, epoch: int) -> int:
        """Return a position that holds what was committed here, once it is in the store; blocks."""
        return self.node.wait_durable(self.limits.durable_s, epoch=epoch)

    def position_headers(self, txid: int | None) -> list[tuple[bytes, bytes]]:
        """Return the headers of the answer to a write: its position, or None where it is not known to be stored."""
        cookie = (b"set-cookie", format_cookie(txid, self.rules.cookie))
        return [cookie] if txid is None else [(POSITION_HEADER, format_position(txid)), cookie]

    def durable_headers(self, result: int | StrandlineError) -> list[tuple[bytes, bytes]] | PlainAnswer:
        """Return the headers of a write that is in the store, or the answer to one of which that is not known."""
        return self.position_headers(result) if isinstance(result, int) else not_durable(str(result))

    def close(self) -> None:
        """End the threads that wait for positions."""
        self._threads.shutdown(wait=False)

    @contextlib.contextmanager
    def _waiting(self) -> Iterator[bool]:
        taken = self._slots.acquire(blocking=False)
        try:
            yield taken
        finally:
            if taken:
                self._slots.release()


class NodeLocator:
    """Where a request of a node goes: to the leader, here if that is this node, or here once the position is."""

    def __init__(
        self, routing: NodeRouting, request: RoutedRequest, is_wanted: Callable[[], bool] = lambda: True
    ) -> None:
        self._routing = routing
        self._request = request
        self.is_wanted = is_wanted

    def where(self) -> str | Place:
        """Return where a request goes now."""
        decision = self._routing.decide(self._request)
        if decision is Decision.SERVE:
            return Place.HERE
        if self._routing.node.role is Role.CHANGING:
            return Place.UNKNOWN
        return self._routing.node.leader_address() or Place.UNKNOWN

    def note_failure(self, address: str, failure: Failure) -> None:
        """Note nothing: the node looks for itself."""

    def note_success(self, address: str) -> None:
        """Note nothing."""
