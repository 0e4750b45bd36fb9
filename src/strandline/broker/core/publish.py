"""The path of a PUB between the session and the router: limits, domain prefix, permissions, traces.

Invariants: a refused message goes nowhere, and the messages before it in the same run are published as if alone. A run
is handled as a whole unless each message must be confirmed or traced. The domain prefix is removed before permissions
and routing see a subject.
"""

from typing import TYPE_CHECKING

from strandline.broker.api.trace_headers import TraceRequest
from strandline.broker.core.close_reasons import PAYLOAD_EXCEEDED, PROTOCOL_VIOLATION
from strandline.broker.core.message_trace import MessageTrace, may_be_traced, trace_of
from strandline.broker.core.permissions import as_text, shown
from strandline.errors import InvalidInput
from strandline.wire import FrameBatch, FrameParser, Side, WireLimits, format_pubs, validate_subject

if TYPE_CHECKING:
    from strandline.broker.core.protocol_trace import ProtocolTracer
    from strandline.broker.core.router import Router
    from strandline.broker.core.session import Session

API = b"$JS.API."
REQUESTS = (b"STREAM.", b"CONSUMER.", b"DIRECT.", b"META.", b"SERVER.", b"ACCOUNT.")
STORED = (b"$KV.", b"$OBJ.")
"""Subjects of streams that clients of a domain publish below the API prefix."""
_LIMITS = WireLimits(payload_bytes_max=1 << 30, line_bytes_max=1 << 30)  # checked when the frames came in
_BY_SUBJECT = ("Permissions Violation for Publish to ", "Publish Violation - Subject ")
_BY_REPLY = ("Permissions Violation for Publish with Reply of ", "Publish Violation - Reply ")
"""An error text for the client, and its form in the log."""


def publish(frames: FrameBatch, session: "Session", router: "Router") -> None:
    """Publish a run of messages, as far as the client is allowed to."""
    if not session.headers and frames.has_headers():
        session.close(PROTOCOL_VIOLATION)
        return
    fitting = len(frames) if session.payload_max is None else _fitting(frames, session.payload_max)
    if fitting < len(frames):
        if fitting:
            publish(frames.part(0, fitting), session, router)
        size = frames.part(fitting, fitting + 1).message_bytes()
        log_text = f"maximum payload exceeded: {size} vs {session.payload_max}"
        session.fail("Maximum Payload Violation", PAYLOAD_EXCEEDED, log_text)
        return
    if session.server_info.domain:
        frames = without_domain(frames, session.server_info.domain)
    if may_be_traced(frames, session):
        _publish_around_traces(frames, session, router)
    else:
        _publish(frames, session, router)


def _publish(frames: FrameBatch, session: "Session", router: "Router") -> None:
    if session.options.verbose or session.options.pedantic:
        _publish_singly(frames, session, router)
        return
    if not session.permissions.allows_every(frames):
        allowed = _allowed(frames, session)
        if not allowed:
            return
        frames = frames if len(allowed) == len(frames) else frames.pick(allowed)
    router.publish(frames, session)


def publish_traced(frames: FrameBatch, session: "Session", router: "Router", tracer: "ProtocolTracer") -> None:
    """Publish messages one by one, and log each before it takes effect."""
    for number in range(len(frames)):
        if session.closing is None:
            tracer.received(frames[number])
            publish(frames.part(number, number + 1), session, router)


def _publish_singly(frames: FrameBatch, session: "Session", router: "Router") -> None:
    for number in range(len(frames)):
        frame = frames.part(number, number + 1)
        if session.options.pedantic and not _is_subject(frame[0].subject):
            session.send_error("Invalid Publish Subject")
        if _allowed(frame, session):
            session.send_ok()
            router.publish(frame, session)


def _publish_around_traces(frames: FrameBatch, session: "Session", router: "Router") -> None:
    """Publish traced messages one by one, and the messages between them in runs."""
    start = 0
    for number, (begin, end) in enumerate(frames.spans("header_start", "payload_start")):
        request = trace_of(frames.data[begin:end], session) if end > begin else None
        if request is not None:
            if number > start:
                _publish(frames.part(start, number), session, router)
            _publish_with_report(frames.part(number, number + 1), session, router, request)
            start = number + 1
    if start < len(frames):
        _publish(frames.part(start, len(frames)), session, router)


def _publish_with_report(frame: FrameBatch, session: "Session", router: "Router", request: TraceRequest) -> None:
    """Publish one traced message; if the client may not publish to the trace destination, refuse the message."""
    is_own = request.dest in (b"", session.trace_dest)
    if not is_own and not session.permissions.may_publish(request.dest, session.active_ns):
        _send_violation(f'Permissions Violation for Publish to "{shown(request.dest)}"', session)
        return
    trace = MessageTrace(request, session, frame, router.publish_report)
    allowed, violations = session.permissions.allowed(frame, session.active_ns)
    if not allowed:
        trace.refuse(violations[0])
        trace.end()
        _send_violation(violations[0], session)
        return
    session.send_ok()
    router.publish_traced(frame, session, trace)


def _fitting(frames: FrameBatch, payload_max: int) -> int:
    """Return how many messages precede the first that is too large."""
    sizes = [end - start for start, end in frames.spans("header_start", "payload_end")]
    return next((number for number, size in enumerate(sizes) if size > payload_max), len(sizes))


def _allowed(frames: FrameBatch, session: "Session") -> list[int]:
    """Return the row numbers of the messages that may be published, and send an error for each of the others."""
    allowed, violations = session.permissions.allowed(frames, session.active_ns)
    for violation in violations:
        _send_violation(violation, session)
    return allowed


def _send_violation(violation: str, session: "Session") -> None:
    session.send_error(violation, violation.replace(*_BY_SUBJECT).replace(*_BY_REPLY))


def _is_subject(subject: bytes) -> bool:
    try:
        validate_subject(as_text(subject))
    except InvalidInput:
        return False
    return True


def without_domain(frames: FrameBatch, domain: str) -> FrameBatch:
    """Return messages with the domain prefix `$JS.<domain>.API.` removed from their subjects.

    As in nats-server, a subject below the prefix that JetStream does not serve stays as it is.
    """
    prefix = b"$JS.%b.API." % domain.encode()
    subjects = frames.subject_list()
    if not any([subject.startswith(prefix) for subject in subjects]):  # noqa: C419 - a list is faster
        return frames
    stripped = [_without_prefix(subject, prefix) for subject in subjects]
    if stripped == subjects:
        return frames
    rows = zip(stripped, frames, strict=True)
    messages = [(subject, frame.reply, bytes(frame.headers), bytes(frame.payload)) for subject, frame in rows]
    return FrameParser(Side.CLIENT, _LIMITS).feed(format_pubs(messages))


def _without_prefix(subject: bytes, prefix: bytes) -> bytes:
    rest = subject[len(prefix) :] if subject.startswith(prefix) else b""
    if rest.startswith(STORED):
        return rest
    return API + rest if rest == b"INFO" or rest.startswith(REQUESTS) else subject
