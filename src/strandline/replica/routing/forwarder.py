"""Forwarding: a request is sent to the leader, or to a reader, and held while there is none.

Invariants: `rules.after_failure` decides on every attempt after the first; a request that is held is counted, and is
held for a bounded time; a request goes to the address that the locator names at the moment of sending.
"""

import asyncio
import time
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol, Self

from strandline.errors import InvalidInput
from strandline.replica.routing.answers import PlainAnswer, bad_request, gave_up, is_misdirected, too_many_held
from strandline.replica.routing.body import ReplayBudget, RequestBody, Source
from strandline.replica.routing.headers import IDEMPOTENCY_HEADER, get_header
from strandline.replica.routing.limits import RoutingLimits
from strandline.replica.routing.rules import Failure, Forwarding, Kind, Next, after_failure
from strandline.replica.routing.upstream import Answer, AttemptFailed, ClientFailed, RequestHead, Upstreams

PAUSE_S, PAUSE_S_MAX = 0.02, 0.25


class Place(Enum):
    """Where a request goes that has no address to go to."""

    HERE = "here"
    UNKNOWN = "unknown"


class Locator(Protocol):
    """Says where a request goes at this moment; made for one request, or shared."""

    def where(self) -> str | Place:
        """Return the address of a server, `HERE`, or `UNKNOWN` where none is known for now."""
        ...

    def note_failure(self, address: str, failure: Failure) -> None:
        """Note that an attempt failed, so that the next answer is a fresh one."""
        ...

    def note_success(self, address: str) -> None:
        """Note that a server has answered."""
        ...

    def is_wanted(self) -> bool:
        """Return whether the client still waits."""
        ...


@dataclass
class Forwarded:
    """How a request was forwarded, for a log."""

    address: str = ""
    attempts: int = 0
    held_s: float = 0.0
    failures: list[str] = field(default_factory=list)


class ForwardRequest(NamedTuple):
    """A request to forward."""

    kind: Kind
    head: RequestHead
    body: RequestBody


class Forwarder:
    """Forwards requests; used within one event loop."""

    def __init__(self, limits: RoutingLimits) -> None:
        self.limits = limits
        self.upstreams = Upstreams(limits)
        self.budget = ReplayBudget(limits.replay_bytes_total)
        self.held = 0

    def body(self, source: Source, size: int | None) -> RequestBody:
        """Return a body that is sent again within the limits."""
        return RequestBody(source, size, self.budget, self.limits.replay_bytes)

    async def forward(
        self, request: ForwardRequest, locator: Locator, told: Forwarded | None = None
    ) -> Answer | PlainAnswer | Place:
        """Return the answer of a server, one of our own where there is none, or `Place.HERE`."""
        told = told or Forwarded()
        with _Hold(self, told) as hold:
            give_up_s = time.monotonic() + self.limits.hold_s
            while True:
                place = locator.where()
                if place is Place.HERE:
                    return place
                failure = Failure.NO_LEADER
                if isinstance(place, str):
                    answer = await self._attempt(request, place, told)
                    if isinstance(answer, Answer):
                        request.body.drop_kept()
                        locator.note_success(place)
                        return answer
                    if isinstance(answer, PlainAnswer):
                        return answer
                    failure = answer
                    locator.note_failure(place, failure)
                given_up = self._after(failure, request, told.attempts, give_up_s)
                if given_up is not None:
                    return given_up
                if isinstance(place, str) and locator.where() not in (place, Place.UNKNOWN):
                    continue  # there is another one to ask at once
                if not hold.begin():
                    return too_many_held()
                await hold.pause(give_up_s)
                if not locator.is_wanted():
                    raise ClientFailed("the client went away while its request was held")

    async def close(self) -> None:
        """Close idle connections."""
        await self.upstreams.close()

    async def _attempt(self, request: ForwardRequest, address: str, told: Forwarded) -> Answer | PlainAnswer | Failure:
        told.address, told.attempts = address, told.attempts + 1
        try:
            answer = await self.upstreams.exchange(
                address, request.head, request.body, may_reuse=request.kind is Kind.READ
            )
        except InvalidInput as error:
            return bad_request(error)
        except AttemptFailed as error:
            told.failures.append(str(error))
            return error.failure
        if is_misdirected(answer.status, answer.headers):
            await answer.close()
            told.failures.append(f"{address}: it does not lead")
            return Failure.NOT_LEADER
        return answer

    def _after(self, failure: Failure, request: ForwardRequest, attempts: int, give_up_s: float) -> PlainAnswer | None:
        body = request.body
        forwarding = Forwarding(
            request.kind,
            bool(get_header(request.head.headers, IDEMPOTENCY_HEADER)),
            body.is_replayable,
            attempts,
            give_up_s - time.monotonic(),
        )
        next_ = after_failure(failure, forwarding)
        if next_ is Next.AGAIN:
            return None
        return gave_up(next_, failure, request.kind, is_replayable=body.is_replayable)


class _Hold:
    """A request that waits: counted from its first pause to the end of its forwarding."""

    def __init__(self, forwarder: Forwarder, told: Forwarded) -> None:
        self._forwarder = forwarder
        self._told = told
        self._began_s: float | None = None
        self._pause_s = PAUSE_S

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._began_s is not None:
            self._forwarder.held -= 1
            self._told.held_s = time.monotonic() - self._began_s

    def begin(self) -> bool:
        """Count the request; return whether it may wait."""
        if self._began_s is None:
            if self._forwarder.held >= self._forwarder.limits.held_max:
                return False
            self._forwarder.held += 1
            self._began_s = time.monotonic()
        return True

    async def pause(self, give_up_s: float) -> None:
        """Wait before the next attempt, longer each time."""
        await asyncio.sleep(min(self._pause_s, max(0.0, give_up_s - time.monotonic())))
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)
