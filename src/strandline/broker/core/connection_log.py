"""What the log says of one client, in the words of nats-server's.

Invariants: a password or a token is never said. What a client sends stays on its line, is cut where it is long, and
fills no log: so many complaints are said of one client, and then no more.
"""

import logging
from typing import TYPE_CHECKING

from strandline.broker.core.close_reasons import AUTH_TIMEOUT, AUTH_VIOLATION, SLOW_CONSUMER, STALE
from strandline.wire import Frame, LineTooLong, PayloadTooLarge, ProtocolViolation

if TYPE_CHECKING:
    from strandline.broker.core.connect import ConnectOptions
    from strandline.broker.core.session import Session

logger = logging.getLogger("strandline.broker")
COMPLAINTS_MAX = 100
_TEXT_MAX = 256
_ESCAPES = {7: "\\a", 8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}


def tell_created(session: "Session") -> None:
    """Say that a client has come."""
    logger.debug("%s - Client connection created", who(session))


def tell_closed(session: "Session") -> None:
    """Say that a client has gone, and why."""
    logger.debug("%s - Client connection closed: %s", who(session), session.closing)


def tell_pinged(session: "Session") -> None:
    """Say that it was time to see whether a client is still there."""
    logger.debug("%s - Client Ping Timer", who(session))


def tell_handshake(session: "Session", what: str, problem: object) -> None:
    """Say that a client did not come through its handshake."""
    logger.debug("%s - %s error: %s", who(session), what, problem)


def tell_failure(session: "Session", text: str, reason: str) -> None:
    """Say why a client is sent away."""
    if reason == AUTH_VIOLATION:
        logger.error("%s - authentication error%s", who(session), _credentials(session))
    elif reason == STALE:
        logger.debug("%s - Stale Client Connection - Closing", who(session))
    elif reason == AUTH_TIMEOUT:
        logger.debug("%s - %s", who(session), text)
    else:
        logger.error("%s - %s", who(session), text)


def tell_complaint(session: "Session", text: str) -> None:
    """Say what a client may not do but tried to."""
    session.complaints += 1
    if session.complaints > COMPLAINTS_MAX:
        return
    more = "; of this client no more is said" if session.complaints == COMPLAINTS_MAX else ""
    logger.error("%s - %s%s", who(session), text, more)


def tell_slow(session: "Session", reason: str, deadline_s: float) -> None:
    """Say that a client is cut off that does not read."""
    limit = (
        f"MaxPending of {session.facts.max_pending} Exceeded"
        if reason == SLOW_CONSUMER
        else f"WriteDeadline of {deadline_s:g}s exceeded"
    )
    logger.warning("%s - Slow Consumer Detected: %s", who(session), limit)


def who(session: "Session") -> str:
    """Return how lines call a client: by its address and number, and by what it says of itself once it is in."""
    host = f"[{session.host}]" if ":" in session.host else session.host
    kind = "wid" if session.kind == "WEBSOCKET" else "cid"
    return f"{host}:{session.port} - {kind}:{session.client_id}{session.label}"


def label_of(options: "ConnectOptions", account: str, user: str) -> str:
    """Return what lines say of a client that is in: its version, language and name, and its account and user."""
    program = ":".join(filter(None, [options.version and f"v{options.version}", options.lang, options.name]))
    if options.nkey:
        user = f"nkey:{options.nkey}"
    elif options.user or not options.auth_token:
        user = f"user:{options.user or user}" if options.user or user else ""
    else:
        user = "token"
    known = [quoted(program) if program else "", quoted(f"{account}/{user}") if user else ""]
    return "".join(f" - {each}" for each in known if each)


def problem_told(problem: ProtocolViolation) -> str:
    """Return what the log says of bytes that cannot be read."""
    if isinstance(problem, PayloadTooLarge):
        return f"maximum payload exceeded: {problem.size} vs {problem.limit}"
    return problem.server_text if isinstance(problem, LineTooLong) else f"Client parser ERROR: {problem}"


def refusal_told(frame: Frame, why: str = "") -> str:
    """Return what the log says of a SUB that may not be."""
    queue = f", Queue: {quoted(frame.reply)}" if frame.reply else ""
    return f"Subscription Violation{why} - Subject {quoted(frame.subject)}{queue}, SID {quoted(frame.sid)[1:-1]}"


def removal_told(pattern: bytes, sid: bytes) -> str:
    """Return what the log says of a subscription that may no longer be."""
    return f"Removed sub {quoted(pattern)} (sid {quoted(sid)}) - not authorized"


def _credentials(session: "Session") -> str:
    options = session.options
    if options.nkey:
        return f" - Nkey {quoted(options.nkey)}"
    if options.user:
        return f" - User {quoted(options.user)}"
    return ' - Token "[REDACTED]"' if options.auth_token else ""


def quoted(text: str | bytes) -> str:
    """Return foreign text in quotes, cut where it is long."""
    return go_quoted(text.encode(errors="surrogateescape")[:_TEXT_MAX] if isinstance(text, str) else text[:_TEXT_MAX])


def go_quoted(data: bytes) -> str:
    """Return bytes in quotes as Go's `%q` does."""
    return f'"{"".join(map(_go_escaped, data.decode(errors="surrogateescape")))}"'


def _go_escaped(letter: str) -> str:
    code = ord(letter)
    if code in _ESCAPES:
        return _ESCAPES[code]
    if letter.isprintable():
        return letter
    if 0xDC80 <= code <= 0xDCFF:  # noqa: PLR2004 - a byte that is not of UTF-8
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x80:  # noqa: PLR2004 - ASCII
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004 - beyond the first plane


def plain(text: str) -> str:
    """Return foreign text on one line, without quotes."""
    return text if text.isprintable() else text.encode("unicode_escape").decode()
