"""What the log says of one client, in the words of nats-server's.

Invariants: a password or a token is never said. What a client sends stays on its line, is cut where it is long, and
fills no log: so many complaints are said of one client, and then no more.
"""

import json
import logging
from typing import TYPE_CHECKING

from strandline.broker.core.reasons import AUTH_TIMEOUT, AUTH_VIOLATION, SLOW_CONSUMER, STALE

if TYPE_CHECKING:
    from strandline.broker.core.session import Session

logger = logging.getLogger("strandline.broker")
COMPLAINTS_MAX = 100
_TEXT_MAX = 256
_VIOLATION = "Permissions Violation for "


def tell_created(session: "Session") -> None:
    """Say that a client has come."""
    logger.debug("%s - Client connection created", _who(session))


def tell_closed(session: "Session") -> None:
    """Say that a client has gone, and why."""
    logger.debug("%s - Client connection closed: %s", _who(session), session.closing)


def tell_failure(session: "Session", text: str, reason: str) -> None:
    """Say why a client is sent away."""
    if reason == AUTH_VIOLATION:
        logger.error("%s - authentication error%s", _who(session), _credentials(session))
    elif reason in (AUTH_TIMEOUT, STALE):
        logger.debug("%s - %s", _who(session), text)
    else:
        logger.error("%s - %s", _who(session), text)


def tell_complaint(session: "Session", text: str) -> None:
    """Say what a client may not do but tried to."""
    session.complaints += 1
    if session.complaints > COMPLAINTS_MAX:
        return
    if text.startswith(_VIOLATION):
        kind, _, what = text.removeprefix(_VIOLATION).partition(" ")
        user = _quoted(session.origin.user or "N/A")
        text = f"{kind} Violation - User {user}, Subject {_plain(what.removeprefix('to '))}"
    more = "; of this client no more is said" if session.complaints == COMPLAINTS_MAX else ""
    logger.error("%s - %s%s", _who(session), text, more)


def tell_slow(session: "Session", reason: str, deadline_s: float) -> None:
    """Say that a client is cut off that does not read."""
    limit = (
        f"MaxPending of {session.facts.max_pending} Exceeded"
        if reason == SLOW_CONSUMER
        else f"WriteDeadline of {deadline_s:g}s exceeded"
    )
    logger.warning("%s - Slow Consumer Detected: %s", _who(session), limit)


def _who(session: "Session") -> str:
    host = f"[{session.host}]" if ":" in session.host else session.host
    kind = "wid" if session.kind == "WEBSOCKET" else "cid"
    return f"{host}:{session.port} - {kind}:{session.client_id}"


def _credentials(session: "Session") -> str:
    options = session.options
    if options.nkey:
        return f" - Nkey {_quoted(options.nkey)}"
    return f" - User {_quoted(options.user)}" if options.user else ""


def _quoted(text: str) -> str:
    return json.dumps(text[:_TEXT_MAX], ensure_ascii=not text.isprintable())


def _plain(text: str) -> str:
    text = text[:_TEXT_MAX]
    return text if text.isprintable() else text.encode("unicode_escape").decode()
