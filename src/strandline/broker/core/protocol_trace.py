"""The protocol trace: each frame between a client and the server as a log line, in nats-server's form.

Invariants: secrets of CONNECT are never logged, and neither is a CONNECT that cannot be parsed. Client text cannot
break out of its line. Every frame but INFO is logged, in the order in which it took effect.
"""

import json
import logging
from typing import TYPE_CHECKING

from strandline.broker.core.connection_log import client_name, go_quoted, plain
from strandline.broker.logs import TRACE
from strandline.broker.settings.model import LogSettings
from strandline.wire import Frame, FrameParser, Op, Side, WireLimits

if TYPE_CHECKING:
    from strandline.broker.core.session import Session

logger = logging.getLogger("strandline.broker")
SECRETS = frozenset(("auth_token", "jwt", "nkey", "pass", "sig"))
REDACTED = "[REDACTED]"
ANY_SIZE = WireLimits(payload_bytes_max=1 << 40, line_bytes_max=1 << 20, info_bytes_max=1 << 20)


class ProtocolTracer:
    """Logs the frames of one connection."""

    def __init__(self, session: "Session", settings: LogSettings) -> None:
        self._session = session
        self._bytes_max = settings.traced_bytes_max
        self._headers_only = settings.trace_headers

    def received(self, frame: Frame) -> None:
        """Log a frame of the client, before it takes effect."""
        self._frame("<<-", frame)

    def sent(self, data: bytes) -> None:
        """Log whole frames that are sent to the client."""
        for frame in FrameParser(Side.SERVER, ANY_SIZE).feed(data):
            if frame.op is not Op.INFO:
                self._frame("->>", frame)

    def unsubscribed(self, sid: bytes) -> None:
        """Log the end of a subscription."""
        self._log(f"<-> [DELSUB {_shown(sid)}]")

    def _frame(self, way: str, frame: Frame) -> None:
        self._log(f"{way} [{_format_line(frame)}]")
        if frame.op not in (Op.PUB, Op.HPUB, Op.MSG, Op.HMSG):
            return
        body = bytes(frame.headers).rstrip(b"\r\n") if self._headers_only else bytes(frame.headers) + frame.payload
        cut = 0 < self._bytes_max < len(body)
        if body:
            shown = go_quoted(body[: self._bytes_max] if cut else body)
            self._log(f'{way} MSG_PAYLOAD: [{shown[:-1]}{"..." if cut else ""}"]')

    def _log(self, text: str) -> None:
        logger.log(TRACE, "%s - %s", client_name(self._session), text)


def _format_line(frame: Frame) -> str:
    """Return the control line of a frame with single spaces and without secrets."""
    match frame.op:
        case Op.CONNECT:
            return f"CONNECT {_without_secrets(bytes(frame.payload))}"
        case Op.ERR:
            return f"-ERR {_shown(bytes(frame.payload)).strip().strip(chr(39))}"
        case Op.SUB | Op.UNSUB:
            words = [frame.subject, frame.reply, frame.sid, bytes(frame.payload)]
        case Op.PUB | Op.HPUB | Op.MSG | Op.HMSG:
            sizes = [b"%d" % len(frame.headers)] if frame.op in (Op.HPUB, Op.HMSG) else []
            sizes.append(b"%d" % (len(frame.headers) + len(frame.payload)))
            words = [frame.subject, frame.sid, frame.reply, *sizes]
        case _:
            words = []
    return " ".join([frame.op.name, *(_shown(word) for word in words if word)])


def _without_secrets(text: bytes) -> str:
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        return REDACTED
    if not isinstance(given, dict):
        return REDACTED
    redacted = {key: REDACTED if key.lower() in SECRETS else value for key, value in given.items()}
    return plain(json.dumps(redacted, separators=(",", ":"), ensure_ascii=False))


def _shown(word: bytes) -> str:
    return plain(word.decode(errors="backslashreplace"))
