"""What a client publishes, before it goes its way: whether it may, and what a client that wants to hear is told.

Invariants: what is refused goes nowhere, and what came before it in the same run goes as if it had come alone. A run is
looked at as a whole unless somebody wants to hear of each message.
"""

from typing import TYPE_CHECKING

from strandline.broker.api.trace_headers import TraceRequest
from strandline.broker.core.close_reasons import PAYLOAD_EXCEEDED, PROTOCOL_VIOLATION
from strandline.broker.core.domains import without_domain
from strandline.broker.core.gate import as_text, shown
from strandline.broker.core.message_trace import MessageTrace, may_be_traced, trace_of
from strandline.errors import InvalidInput
from strandline.wire import FrameBatch, validate_subject

if TYPE_CHECKING:
    from strandline.broker.core.protocol_trace import Tracer
    from strandline.broker.core.router import Router
    from strandline.broker.core.session import Session

_BY_SUBJECT = ("Permissions Violation for Publish to ", "Publish Violation - Subject ")
_BY_REPLY = ("Permissions Violation for Publish with Reply of ", "Publish Violation - Reply ")
"""What a client is told, and what the log says."""


def publish(frames: FrameBatch, session: "Session", router: "Router") -> None:
    """Send a run of messages where they go, as far as the client may."""
    if not session.headers and frames.has_headers():
        session.close(PROTOCOL_VIOLATION)
        return
    fitting = len(frames) if session.payload_max is None else _fitting(frames, session.payload_max)
    if fitting < len(frames):
        if fitting:
            publish(frames.part(0, fitting), session, router)
        size = frames.part(fitting, fitting + 1).message_bytes()
        telling = f"maximum payload exceeded: {size} vs {session.payload_max}"
        session.fail("Maximum Payload Violation", PAYLOAD_EXCEEDED, telling)
        return
    if session.facts.domain:
        frames = without_domain(frames, session.facts.domain)
    if may_be_traced(frames, session):
        _publish_around_traces(frames, session, router)
    else:
        _publish(frames, session, router)


def _publish(frames: FrameBatch, session: "Session", router: "Router") -> None:
    if session.options.verbose or session.options.pedantic:
        _publish_singly(frames, session, router)
        return
    if not session.gate.is_open(frames):
        allowed = _allowed(frames, session)
        if not allowed:
            return
        frames = frames if len(allowed) == len(frames) else frames.pick(allowed)
    router.publish(frames, session)


def publish_traced(frames: FrameBatch, session: "Session", router: "Router", tracer: "Tracer") -> None:
    """Send messages one by one, and tell of each before it takes effect."""
    for number in range(len(frames)):
        if session.closing is None:
            tracer.heard(frames[number])
            publish(frames.part(number, number + 1), session, router)


def _publish_singly(frames: FrameBatch, session: "Session", router: "Router") -> None:
    for number in range(len(frames)):
        frame = frames.part(number, number + 1)
        if session.options.pedantic and not _is_subject(frame[0].subject):
            session.complain("Invalid Publish Subject")
        if _allowed(frame, session):
            session.confirm()
            router.publish(frame, session)


def _publish_around_traces(frames: FrameBatch, session: "Session", router: "Router") -> None:
    """Send messages that are to be traced one by one, and those between them as ever."""
    start = 0
    for number, (begin, end) in enumerate(frames.spans("header_start", "payload_start")):
        asked = trace_of(frames.data[begin:end], session) if end > begin else None
        if asked is not None:
            if number > start:
                _publish(frames.part(start, number), session, router)
            _publish_with_report(frames.part(number, number + 1), session, router, asked)
            start = number + 1
    if start < len(frames):
        _publish(frames.part(start, len(frames)), session, router)


def _publish_with_report(frame: FrameBatch, session: "Session", router: "Router", asked: TraceRequest) -> None:
    """Send one message that is traced; where the report may not go, the message does not go either."""
    is_own = asked.dest in (b"", session.trace_dest)
    if not is_own and not session.gate.may_publish(asked.dest, session.active_ns):
        _complain(f'Permissions Violation for Publish to "{shown(asked.dest)}"', session)
        return
    trace = MessageTrace(asked, session, frame, router.publish_report)
    allowed, complaints = session.gate.allowed(frame, session.active_ns)
    if not allowed:
        trace.refuse(complaints[0])
        trace.end()
        _complain(complaints[0], session)
        return
    session.confirm()
    router.publish_traced(frame, session, trace)


def _fitting(frames: FrameBatch, payload_max: int) -> int:
    """Return how many messages come before the first that is too large."""
    sizes = [end - start for start, end in frames.spans("header_start", "payload_end")]
    return next((number for number, size in enumerate(sizes) if size > payload_max), len(sizes))


def _allowed(frames: FrameBatch, session: "Session") -> list[int]:
    """Return the numbers of the messages that may be published, and complain about the others."""
    allowed, complaints = session.gate.allowed(frames, session.active_ns)
    for complaint in complaints:
        _complain(complaint, session)
    return allowed


def _complain(complaint: str, session: "Session") -> None:
    session.complain(complaint, complaint.replace(*_BY_SUBJECT).replace(*_BY_REPLY))


def _is_subject(subject: bytes) -> bool:
    try:
        validate_subject(as_text(subject))
    except InvalidInput:
        return False
    return True
