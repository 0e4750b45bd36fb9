"""What one client may do: what it may publish and subscribe to, and what it may not be sent.

Invariants: what is refused is told in the words of nats-server. Nobody may have answers sent to where only the server
expects them. What a client may not hear is kept from it from the first subscription on that could bring it, by
whichever subscription it would come.
"""

from collections.abc import Iterable

from strandline.broker.core.permissions import Denied, Responses, Rights
from strandline.broker.settings import Permissions
from strandline.wire import FrameBatch

RESERVED_REPLIES = (b"$JS.ACK.", b"_R_.", b"_GR_.", b"$GR.")
"""Where only the server may have answers sent."""


class Gate:
    """The rights of one client; without permissions it may do everything."""

    def __init__(self, permissions: Permissions | None = None) -> None:
        rights = None if permissions is None else Rights(permissions)
        self._publish = None if rights is None else rights.publish
        self._subscribe = None if rights is None else rights.subscribe
        self.responses: Responses | None = None if rights is None else rights.responses
        """What it may answer, where it may not publish."""
        self.denied: Denied | None = None
        """What must not be delivered, though it is subscribed to; None while nothing of it is."""

    def is_open(self, frames: FrameBatch) -> bool:
        """Tell whether it is plain that messages may be published; if not, `allowed` tells which."""
        return self._publish is None and not _has_reserved_reply(frames)

    def allowed(self, frames: FrameBatch, now_ns: int) -> tuple[list[int], list[str]]:
        """Return the numbers of the messages that may be published, and what is to be said about the others."""
        subjects, rights = frames.subject_list(), self._publish
        everything = rights is None or rights.allows_all(subjects)
        if everything and not _has_reserved_reply(frames):
            return list(range(len(subjects))), []
        allowed, complaints = [], []
        for number, (subject, reply) in enumerate(zip(subjects, frames.replies(), strict=True)):
            if reply.startswith(RESERVED_REPLIES):
                complaints.append(f'Permissions Violation for Publish with Reply of "{shown(reply)}"')
            elif everything or rights is None or rights.allows(subject) or self._may_answer(subject, now_ns):
                allowed.append(number)
            else:
                complaints.append(f'Permissions Violation for Publish to "{shown(subject)}"')
        return allowed, complaints

    def may_publish(self, subject: bytes, now_ns: int) -> bool:
        """Tell whether a subject may be published to, and count it as an answer if only that allows it."""
        return self._publish is None or self._publish.allows(subject) or self._may_answer(subject, now_ns)

    def refusal(self, subject: bytes, queue: bytes) -> str:
        """Return what is to be said to a subscription that may not be; empty if it may."""
        if self._subscribe is None or self._subscribe.allows(as_text(subject), as_text(queue)):
            return ""
        member = f' using queue "{shown(queue)}"' if queue else ""
        return f'Permissions Violation for Subscription to "{shown(subject)}"{member}'

    def hears(self, patterns: Iterable[tuple[bytes, bytes]]) -> bool:
        """Note patterns and queues that are subscribed to; return whether messages have to be filtered from now on."""
        rights = self._subscribe
        if rights is None or self.denied is not None:
            return False
        if any(rights.needs_filter(as_text(pattern), as_text(queue)) for pattern, queue in patterns):
            self.denied = rights.denied
        return self.denied is not None

    def _may_answer(self, subject: bytes, now_ns: int) -> bool:
        return self.responses is not None and self.responses.use(subject, now_ns)


def as_text(subject: bytes) -> str:
    """Return a subject as patterns are compared; any bytes have their text."""
    return subject.decode(errors="surrogateescape")


def shown(subject: bytes) -> str:
    """Return a subject for an error."""
    return subject.decode(errors="backslashreplace")


def is_pattern(subject: bytes) -> bool:
    """Tell whether a subject may be subscribed to."""
    tokens = subject.split(b".")
    return b"" not in tokens and b">" not in tokens[:-1]


def _has_reserved_reply(frames: FrameBatch) -> bool:
    return frames.any_reply_starts(RESERVED_REPLIES)
