"""The answers that a router gives itself: what happened, whether the request was executed, and what to do.

    Strandline-Outcome: not-done     the request was not executed; send it again
    Strandline-Outcome: unknown      it may have been executed; look before sending it again
    Strandline-Refused: not-leader   with 421: this node does not lead, and has not executed the request

The body is a JSON object: `error`, `outcome`, `hint`.
"""

import json
from http import HTTPStatus
from typing import NamedTuple

from strandline.errors import InvalidInput
from strandline.replica.routing.headers import REFUSED_HEADER, Headers, get_header
from strandline.replica.routing.rules import Failure, Kind, Next

OUTCOME_HEADER = b"strandline-outcome"
NOT_DONE, UNKNOWN = "not-done", "unknown"
MISDIRECTED = 421
_NOT_LEADER = b"not-leader"


class PlainAnswer(NamedTuple):
    """A whole answer."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


def reason_of(status: int) -> str:
    """Return the phrase that goes with a status."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"


def answer(status: int, error: str, *, outcome: str = "", hint: str = "", retry_s: int | None = None) -> PlainAnswer:
    """Return an answer that says what happened."""
    fields = {"error": error, "outcome": outcome, "hint": hint}
    body = (json.dumps({name: value for name, value in fields.items() if value}) + "\n").encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if outcome:
        headers.append((OUTCOME_HEADER, outcome.encode()))
    if retry_s is not None:
        headers.append((b"retry-after", b"%d" % retry_s))
    return PlainAnswer(status, headers, body)


def bad_request(error: InvalidInput, status: int = 400) -> PlainAnswer:
    """Return the answer to a request that is refused as it is."""
    return answer(status, str(error), outcome=NOT_DONE, hint=error.hint or "")


def looping(error: InvalidInput) -> PlainAnswer:
    """Return the answer to a request that came by here before."""
    return bad_request(error, 508)


def misdirected() -> PlainAnswer:
    """Return the answer of a node that was taken for the leader."""
    found = answer(MISDIRECTED, "this node does not lead", outcome=NOT_DONE, hint="look for the leader again")
    found.headers.append((REFUSED_HEADER, _NOT_LEADER))
    return found


def is_misdirected(status: int, headers: Headers) -> bool:
    """Return whether an answer is `misdirected`, rather than one of an application."""
    return status == MISDIRECTED and get_header(headers, REFUSED_HEADER) == _NOT_LEADER


def too_many_held() -> PlainAnswer:
    """Return the answer where no more requests are held."""
    hint = "no leader serves writes, and as many requests wait for one as are allowed"
    return answer(503, "too many requests are waiting for a leader", outcome=NOT_DONE, hint=hint, retry_s=1)


def not_durable(reason: str) -> PlainAnswer:
    """Return the answer to a write that was executed here and did not reach the object store in time."""
    hint = "look whether it took effect before sending it again"
    return answer(504, f"the write is not known to be durable: {reason}", outcome=UNKNOWN, hint=hint)


def gave_up(next_: Next, failure: Failure, kind: Kind, *, is_replayable: bool) -> PlainAnswer:
    """Return the answer to a request that is not sent again."""
    status = 504 if failure is Failure.TIMED_OUT else 502
    if next_ is Next.UNKNOWN:
        hint = "look whether it took effect before sending it again; with an Idempotency-Key it is sent again by itself"
        return answer(status, f"the {kind.value} may have been executed: {failure.value}", outcome=UNKNOWN, hint=hint)
    if next_ is Next.FAILED:
        return answer(status, f"the {kind.value} was not answered: {failure.value}", hint="send it again", retry_s=1)
    reason = failure.value if is_replayable else f"{failure.value}, and the body is too large to be sent again"
    hint = "nothing was done; send it again"
    return answer(503, f"the {kind.value} was not executed: {reason}", outcome=NOT_DONE, hint=hint, retry_s=1)
