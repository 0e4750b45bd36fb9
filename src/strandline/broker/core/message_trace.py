"""The trace of one message: its events, and their report to the trace destination (ADR-41).

Invariants: a report is sent once, after every stream on the message's path has reported its outcome; it goes to clients
and streams of the message's own account, and only to a destination that the publisher may publish to.
"""

import gzip
import json
import random
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any

from strandline.broker.api.times import format_time
from strandline.broker.api.trace_headers import TRACE_DEST, TraceRequest, is_sampled, parse_trace
from strandline.broker.core.connection_log import log_violation
from strandline.broker.core.server_info import FEATURE_FLAGS, SERVER_VERSION, ServerInfo
from strandline.wire import FrameBatch

if TYPE_CHECKING:
    from strandline.broker.core.session import Session
    from strandline.broker.core.subscriptions import Subscription

Fields = dict[str, Any]
CLIENT_KIND = 0
NO_ECHO = "Not delivered because of no echo"
SUBSCRIPTION_DENIES = "Not delivered because subscription denies this subject"
CLIENT_CLOSED = "Not delivered because client is closed"
SUBSCRIPTION_CLOSED = "Not delivered because subscription is closed"
_DEST_LINE = b"\r\n" + TRACE_DEST + b":"
_PARENT = b"raceparent"
_FLAGS_WITH_JETSTREAM = 7
_sequence = count(1)


def describe_server(server_info: ServerInfo, now_ns: int) -> Fields:
    """Return the `server` field of server events."""
    return {
        "name": server_info.server_name or server_info.server_id,
        "host": server_info.host,
        "id": server_info.server_id,
        "ver": SERVER_VERSION,
        **({"domain": server_info.domain} if server_info.domain else {}),
        "feature_flags": FEATURE_FLAGS,
        "jetstream": server_info.jetstream,
        "flags": _FLAGS_WITH_JETSTREAM if server_info.jetstream else 0,
        "seq": next(_sequence),
        "time": format_time(now_ns),
    }


def may_be_traced(frames: FrameBatch, session: "Session") -> bool:
    """Tell whether some message of a run may request a trace; a payload can cause a false positive."""
    return frames.may_have_header(_DEST_LINE) or (bool(session.trace_dest) and frames.may_have_header(_PARENT))


def trace_of(block: bytes, session: "Session") -> TraceRequest | None:
    """Return the trace request of a message: from its headers, or by its account's sampling."""
    request = parse_trace(block)
    if request is not None and not request.dest:
        log_violation(session, "Nats-Trace-Dest is not a valid subject, the message is not traced")
        return request if request.only else None
    if request is not None or not session.trace_dest or not is_sampled(block):
        return request
    chance = random.randrange(100)  # noqa: S311 - which messages are sampled is no secret
    return TraceRequest(session.trace_dest) if chance < session.trace_sampling else None


class MessageTrace:
    """The events of one message; `publish` sends the report with its headers."""

    def __init__(
        self,
        request: TraceRequest,
        session: "Session",
        frames: FrameBatch,
        publish: Callable[[bytes, bytes, bytes], None],
    ) -> None:
        self.only = request.only
        self._dest = request.dest
        self._session = session
        self._frame = frames[0]
        self._publish = publish
        self._waiting = 1
        client = {"kind": CLIENT_KIND, "cid": session.client_id, **_named(session.options.name)}
        subject = _text(self._frame.subject)
        self._ingress = self._event("in", client | {"acc": session.origin.account, "subj": subject})
        self._events = [self._ingress]

    def _event(self, what: str, fields: Fields) -> Fields:
        return {"type": what, "ts": format_time(self._session.clock.now_ns()), **fields}

    def header(self, name: bytes) -> str:
        """Return a header of the message, empty if it has none."""
        return next((_text(value) for own, value in _pairs(bytes(self._frame.headers)) if own == name), "")

    def refuse(self, problem: str) -> None:
        """Record why the message was refused."""
        self._ingress["error"] = problem

    def note_request(self) -> None:
        """Record that a service of the server takes the message."""
        subject, account = _text(self._frame.subject), self._session.server_info.system_account
        self._events.append(self._event("si", {"acc": account, "from": subject, "to": subject}))

    def note_egress(self, subscription: "Subscription", problem: str) -> None:
        """Record the delivery to a subscription, or why there is none."""
        session = subscription.session
        fields = {"kind": CLIENT_KIND, "cid": session.client_id, **_named(session.options.name)}
        fields["sub"] = _text(subscription.pattern)
        if subscription.queue:
            fields["queue"] = _text(subscription.queue)
        if problem:
            fields["error"] = problem
        self._events.append(self._event("eg", fields))

    def wait_for_stream(self) -> None:
        """Delay the report until a stream has reported its outcome."""
        self._waiting += 1

    def note_stream(self, stream: str, problem: str = "") -> None:
        """Record the outcome of a stream that the report waits for."""
        outcome = {"error": problem} if problem else {"subject": _text(self._frame.subject)}
        self._events.append(self._event("js", {"stream": stream} | outcome))
        self.end()

    def end(self) -> None:
        """Send the report if no stream is outstanding and there is a destination."""
        self._waiting -= 1
        if self._waiting or not self._dest:
            return
        headers: dict[str, list[str]] = {}
        for name, value in _pairs(bytes(self._frame.headers)):
            headers.setdefault(_text(name), []).append(_text(value))
        size = len(self._frame.headers) + len(self._frame.payload)
        report = {
            "server": describe_server(self._session.server_info, self._session.clock.now_ns()),
            "request": {"header": dict(sorted(headers.items())), "msgsize": size},
            "events": self._events,
        }
        payload, block = json.dumps(report, separators=(",", ":")).encode(), b""
        if any("gzip" in value.lower() for value in headers.get("Accept-Encoding", [])):
            payload, block = gzip.compress(payload, mtime=0), b"NATS/1.0\r\nContent-Encoding: gzip\r\n\r\n"
        self._publish(self._dest, payload, block)


def _named(name: str) -> Fields:
    return {"name": name} if name else {}


def _pairs(block: bytes) -> list[tuple[bytes, bytes]]:
    lines = [line.partition(b":") for line in block.split(b"\r\n")[1:] if b":" in line]
    return [(name, value.strip()) for name, _, value in lines]


def _text(value: bytes) -> str:
    return value.decode(errors="replace")
