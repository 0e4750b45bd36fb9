"""Log lines about one connection, in nats-server's words.

Invariants: passwords and tokens are never logged. Client text cannot break out of its line and is truncated. Violations
of one client are logged up to a limit, so that no client can fill the log.
"""

import logging
from typing import TYPE_CHECKING

from strandline.broker.core.close_reasons import AUTH_TIMEOUT, AUTH_VIOLATION, SLOW_CONSUMER, STALE
from strandline.wire import Frame, LineTooLong, PayloadTooLarge, ProtocolViolation

if TYPE_CHECKING:
    from strandline.broker.core.connect import ConnectOptions
    from strandline.broker.core.session import Session

logger = logging.getLogger("strandline.broker")
VIOLATIONS_LOGGED_MAX = 100
_TEXT_MAX = 256
_ESCAPES = {7: "\\a", 8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}


def log_created(session: "Session") -> None:
    """Log a new connection."""
    logger.debug("%s - Client connection created", client_name(session))


def log_closed(session: "Session") -> None:
    """Log the end of a connection, with its reason."""
    logger.debug("%s - Client connection closed: %s", client_name(session), session.closing)


def log_ping_timer(session: "Session") -> None:
    """Log that the ping timer of a client has fired."""
    logger.debug("%s - Client Ping Timer", client_name(session))


def log_handshake_error(session: "Session", what: str, problem: object) -> None:
    """Log a failed TLS or WebSocket handshake."""
    logger.debug("%s - %s error: %s", client_name(session), what, problem)


def log_failure(session: "Session", text: str, reason: str) -> None:
    """Log why the server closes a connection."""
    if reason == AUTH_VIOLATION:
        logger.error("%s - authentication error%s", client_name(session), _credentials(session))
    elif reason == STALE:
        logger.debug("%s - Stale Client Connection - Closing", client_name(session))
    elif reason == AUTH_TIMEOUT:
        logger.debug("%s - %s", client_name(session), text)
    else:
        logger.error("%s - %s", client_name(session), text)


def log_violation(session: "Session", text: str) -> None:
    """Log a violation of a client."""
    session.violations += 1
    if session.violations > VIOLATIONS_LOGGED_MAX:
        return
    more = "; further violations of this client are not logged" if session.violations == VIOLATIONS_LOGGED_MAX else ""
    logger.error("%s - %s%s", client_name(session), text, more)


def log_slow_consumer(session: "Session", reason: str, deadline_s: float) -> None:
    """Log that a client which does not read is disconnected."""
    limit = (
        f"MaxPending of {session.server_info.max_pending} Exceeded"
        if reason == SLOW_CONSUMER
        else f"WriteDeadline of {deadline_s:g}s exceeded"
    )
    logger.warning("%s - Slow Consumer Detected: %s", client_name(session), limit)


def client_name(session: "Session") -> str:
    """Return the prefix of a client's lines: address, id, and its label once it is connected."""
    host = f"[{session.host}]" if ":" in session.host else session.host
    kind = "wid" if session.kind == "WEBSOCKET" else "cid"
    return f"{host}:{session.port} - {kind}:{session.client_id}{session.label}"


def connect_label(options: "ConnectOptions", account: str, user: str) -> str:
    """Return the label of a connected client: version, language and name, account and user."""
    program = ":".join(filter(None, [options.version and f"v{options.version}", options.lang, options.name]))
    if options.nkey:
        user = f"nkey:{options.nkey}"
    elif options.user or not options.auth_token:
        user = f"user:{options.user or user}" if options.user or user else ""
    else:
        user = "token"
    known = [quoted(program) if program else "", quoted(f"{account}/{user}") if user else ""]
    return "".join(f" - {each}" for each in known if each)


def describe_violation(problem: ProtocolViolation) -> str:
    """Return the log text for bytes that violate the protocol."""
    if isinstance(problem, PayloadTooLarge):
        return f"maximum payload exceeded: {problem.size} vs {problem.limit}"
    return problem.server_text if isinstance(problem, LineTooLong) else f"Client parser ERROR: {problem}"


def describe_refused_subscription(frame: Frame, why: str = "") -> str:
    """Return the log text for a SUB that is not permitted."""
    queue = f", Queue: {quoted(frame.reply)}" if frame.reply else ""
    return f"Subscription Violation{why} - Subject {quoted(frame.subject)}{queue}, SID {quoted(frame.sid)[1:-1]}"


def describe_removed_subscription(pattern: bytes, sid: bytes) -> str:
    """Return the log text for a subscription that is no longer permitted."""
    return f"Removed sub {quoted(pattern)} (sid {quoted(sid)}) - not authorized"


def _credentials(session: "Session") -> str:
    options = session.options
    if options.nkey:
        return f" - Nkey {quoted(options.nkey)}"
    if options.user:
        return f" - User {quoted(options.user)}"
    return ' - Token "[REDACTED]"' if options.auth_token else ""


def quoted(text: str | bytes) -> str:
    """Return client text in quotes, truncated."""
    return go_quoted(text.encode(errors="surrogateescape")[:_TEXT_MAX] if isinstance(text, str) else text[:_TEXT_MAX])


def go_quoted(data: bytes) -> str:
    """Return bytes quoted as by Go's `%q`."""
    return f'"{"".join(map(_go_escaped, data.decode(errors="surrogateescape")))}"'


def _go_escaped(letter: str) -> str:
    code = ord(letter)
    if code in _ESCAPES:
        return _ESCAPES[code]
    if letter.isprintable():
        return letter
    if 0xDC80 <= code <= 0xDCFF:  # noqa: PLR2004 - a byte that is not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x80:  # noqa: PLR2004 - ASCII
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004 - beyond the first plane


def plain(text: str) -> str:
    """Return client text on one line, without quotes."""
    return text if text.isprintable() else text.encode("unicode_escape").decode()
