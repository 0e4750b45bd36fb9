"""Errors of the protocol; part of the tree in `strandline.errors`.

    FormatError
    └── ProtocolViolation        the peer does not speak the protocol; the connection is over
        ├── MalformedFrame       an unknown operation, or a wrong terminator
        │   └── WrongArguments   an operation with arguments that are not its own
        ├── LineTooLong          a control line beyond the limit, or one that never ends
        ├── PayloadTooLarge      a size beyond the limit
        └── MalformedHeaders     a header block that is not NATS/1.0
    InvalidInput
    └── InvalidSubject           a subject that no server takes

Invariants: `server_text` is nats-server's `-ERR` text for the same violation, empty for none. No message contains more
than the first bytes of the peer's input.
"""

from typing import ClassVar

from strandline.errors import FormatError, InvalidInput

SHOWN_BYTES = 40


def shown(data: bytes) -> str:
    """Return the beginning of foreign bytes as people can read it."""
    return repr(data[:SHOWN_BYTES]) + ("…" if len(data) > SHOWN_BYTES else "")


class ProtocolViolation(FormatError):
    """The peer sent something that cannot be read, so nothing after it can be either."""

    server_text: ClassVar[str] = "Unknown Protocol Operation"

    def __init__(self, problem: str) -> None:
        super().__init__("NATS protocol", problem, hint="close the connection; what came before it was read whole")


class MalformedFrame(ProtocolViolation):
    """An unknown operation, or a payload that does not end where its size says."""


class WrongArguments(MalformedFrame):
    """Too few or too many arguments, or one that is not a size."""

    server_text = ""


class LineTooLong(ProtocolViolation):
    """A control line that is longer than allowed, or that has not ended by then."""

    server_text = "maximum control line exceeded"

    def __init__(self, limit: int) -> None:
        super().__init__(f"a control line of more than {limit:,} bytes")
        self.limit = limit


class PayloadTooLarge(ProtocolViolation):
    """A frame that announces more bytes than allowed; none of them were kept."""

    server_text = "Maximum Payload Violation"

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"a payload of {size:,} bytes; the limit is {limit:,}")
        self.size = size
        self.limit = limit


class MalformedHeaders(ProtocolViolation):
    """A header block that does not begin with NATS/1.0, or a line of it without a colon."""


class InvalidSubject(InvalidInput):
    """A subject that is empty, has an empty token, white space, or a wildcard where none may be."""

    def __init__(self, subject: str, problem: str) -> None:
        super().__init__(
            f"subject {subject!r} {problem}", hint="tokens are separated by single dots; > may only be the last"
        )
        self.subject = subject
        self.problem = problem
