"""Permissions of one client: the subjects that it may publish and subscribe to, and the messages withheld from it.

Invariants: errors carry nats-server's words. Without an allow list, everything that is not denied is allowed. A
subscription needs one allowed pattern that covers all of it and no denied pattern that does. If it overlaps a denied
pattern, denied messages are filtered at delivery, for every subscription of the client, from then on. (nats-server
accepts `a.>` where `a.*` is allowed; this broker refuses it.) A rule entry `subject queue` concerns members of that
queue group alone. No client may set a reply subject that is reserved for the server.

A user with a response rule may also publish to the reply subject of a message delivered to it, up to a number of times
and within a time.
"""

from collections.abc import Iterable

from strandline.broker.core.sublist import Sublist
from strandline.broker.settings import Permissions, ResponseRule, Rule
from strandline.clock import NS_PER_S
from strandline.wire import FrameBatch, has_wildcard, pattern_covers, patterns_overlap

RESPONSES_MAX = 1 << 16
RESERVED_REPLIES = (b"$JS.ACK.", b"_R_.", b"_GR_.", b"$GR.")
"""Reply subjects that only the server may set."""


class ClientPermissions:
    """The permissions of one connection; without `granted` everything is allowed."""

    def __init__(self, granted: Permissions | None = None) -> None:
        self.granted = granted
        publish, subscribe, responses = (
            (granted.publish, granted.subscribe, granted.responses) if granted is not None else (None, None, None)
        )
        self._publish = (
            None if publish is None and responses is None else PublishPermissions(publish or Rule(), responses)
        )
        self._subscribe = None if subscribe is None else SubscribePermissions(subscribe)
        self.responses = None if responses is None else ResponsePermissions(responses)
        """Reply subjects that the client may answer to although it may not publish to them."""
        self.denied: DeniedSubjects | None = None
        """Subjects filtered at delivery; None while no subscription overlaps one."""

    def allows_every(self, frames: FrameBatch) -> bool:
        """Tell cheaply whether all messages may be published; if False, ask `allowed`."""
        return self._publish is None and not _has_reserved_reply(frames)

    def allowed(self, frames: FrameBatch, now_ns: int) -> tuple[list[int], list[str]]:
        """Return the row numbers of messages that may be published, and an error text for each of the others."""
        subjects, publish = frames.subject_list(), self._publish
        everything = publish is None or publish.allows_all(subjects)
        if everything and not _has_reserved_reply(frames):
            return list(range(len(subjects))), []
        allowed, violations = [], []
        for number, (subject, reply) in enumerate(zip(subjects, frames.replies(), strict=True)):
            if reply.startswith(RESERVED_REPLIES):
                violations.append(f'Permissions Violation for Publish with Reply of "{shown(reply)}"')
            elif everything or publish is None or publish.allows(subject) or self._may_answer(subject, now_ns):
                allowed.append(number)
            else:
                violations.append(f'Permissions Violation for Publish to "{shown(subject)}"')
        return allowed, violations

    def may_publish(self, subject: bytes, now_ns: int) -> bool:
        """Tell whether a subject may be published to; uses up one answer if only the response rule allows it."""
        return self._publish is None or self._publish.allows(subject) or self._may_answer(subject, now_ns)

    def refusal(self, subject: bytes, queue: bytes) -> str:
        """Return the error text for a subscription that is not allowed, empty if it is."""
        if self._subscribe is None or self._subscribe.allows(as_text(subject), as_text(queue)):
            return ""
        member = f' using queue "{shown(queue)}"' if queue else ""
        return f'Permissions Violation for Subscription to "{shown(subject)}"{member}'

    def note_subscribed(self, patterns: Iterable[tuple[bytes, bytes]]) -> bool:
        """Note new subscriptions (pattern and queue); return whether deliveries must be filtered from now on."""
        subscribe = self._subscribe
        if subscribe is None or self.denied is not None:
            return False
        if any(subscribe.needs_filter(as_text(pattern), as_text(queue)) for pattern, queue in patterns):
            self.denied = subscribe.denied
        return self.denied is not None

    def _may_answer(self, subject: bytes, now_ns: int) -> bool:
        return self.responses is not None and self.responses.use(subject, now_ns)


class SubjectSet:
    """A set of patterns, matched against one or many subjects."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self.patterns = tuple(patterns)
        self._sublist: Sublist[str, bool] = Sublist(bool)
        for pattern in self.patterns:
            self._sublist.add(pattern.encode(), pattern)

    def has(self, subject: bytes) -> bool:
        """Tell whether some pattern matches a subject."""
        return self._sublist.find(subject)

    def common(self, subjects: list[bytes]) -> bool | None:
        """Return the one answer for all of some subjects, None if each must be asked for."""
        return self._sublist.find_common(subjects)


class DeniedSubjects:
    """Subjects filtered from deliveries; an entry with a queue concerns members of that queue group."""

    def __init__(self, entries: list[tuple[str, str]]) -> None:
        self._entries = entries
        self._all = SubjectSet(pattern for pattern, queue in entries if not queue)
        self._queued = [(SubjectSet([pattern]), queue) for pattern, queue in entries if queue]

    def has(self, subject: bytes, queue: bytes) -> bool:
        """Tell whether messages on a subject must not be delivered."""
        if self._all.has(subject):
            return True
        name = queue.decode(errors="surrogateescape")
        return bool(queue) and any(pattern_covers(own, name) and each.has(subject) for each, own in self._queued)

    def overlaps(self, pattern: str, queue: str) -> bool:
        """Tell whether a pattern matches some denied subject."""
        return any(
            patterns_overlap(denied, pattern) and (not own or (queue and pattern_covers(own, queue)))
            for denied, own in self._entries
        )


class PublishPermissions:
    """The publish rule of one user."""

    def __init__(self, rule: Rule, responses: ResponseRule | None) -> None:
        allow = () if rule.allow is None and responses is not None else rule.allow
        self._allow = None if allow is None else SubjectSet(allow)
        self._deny = SubjectSet(rule.deny)

    def allows_all(self, subjects: list[bytes]) -> bool:
        """Tell cheaply whether all of some subjects are allowed; if False, ask for each."""
        if self._allow is not None and not self._allow.common(subjects):
            return False
        return not self._deny.patterns or self._deny.common(subjects) is False

    def allows(self, subject: bytes) -> bool:
        """Tell whether a subject may be published to."""
        return (self._allow is None or self._allow.has(subject)) and not self._deny.has(subject)


class SubscribePermissions:
    """The subscribe rule of one user, and the subjects filtered from its deliveries."""

    def __init__(self, rule: Rule) -> None:
        self._allow = None if rule.allow is None else [_with_queue(entry) for entry in rule.allow]
        self._deny = [_with_queue(entry) for entry in rule.deny]
        self.denied = DeniedSubjects(self._deny)

    def allows(self, pattern: str, queue: str) -> bool:
        """Tell whether a pattern may be subscribed to, in a queue group or without one."""
        if self._allow is not None and not _is_listed(self._allow, pattern, queue):
            return False
        return not _is_listed(self._deny, pattern, queue)

    def needs_filter(self, pattern: str, queue: str) -> bool:
        """Tell whether some subjects of an allowed pattern are denied."""
        return has_wildcard(pattern) and self.denied.overlaps(pattern, queue)


class ResponsePermissions:
    """Reply subjects that a client may answer to, each until it is used up or expires."""

    def __init__(self, rule: ResponseRule) -> None:
        self._messages_max = rule.max_messages
        self._time_ns = int(rule.expires_s * NS_PER_S)
        self._replies: dict[bytes, tuple[int, int]] = {}

    def expect(self, replies: Iterable[bytes], now_ns: int) -> None:
        """Allow answers to the reply subjects of messages delivered now."""
        for reply in replies:
            if reply:
                self._replies.pop(reply, None)
                self._replies[reply] = self._messages_max, now_ns + self._time_ns
        while self._replies and len(self._replies) > RESPONSES_MAX:
            self._replies.pop(next(iter(self._replies)))

    def use(self, subject: bytes, now_ns: int) -> bool:
        """Tell whether a subject may be answered to, and use up one answer."""
        left, until_ns = self._replies.get(subject, (0, 0))
        if not left or (self._time_ns > 0 and now_ns > until_ns):
            self._replies.pop(subject, None)
            return False
        if left > 0:
            self._replies[subject] = left - 1, until_ns
        return True


def as_text(subject: bytes) -> str:
    """Return a subject as text for comparing patterns; any bytes can be decoded."""
    return subject.decode(errors="surrogateescape")


def shown(subject: bytes) -> str:
    """Return a subject for an error text."""
    return subject.decode(errors="backslashreplace")


def is_pattern(subject: bytes) -> bool:
    """Tell whether a subject is a valid subscription pattern."""
    tokens = subject.split(b".")
    return b"" not in tokens and b">" not in tokens[:-1]


def _has_reserved_reply(frames: FrameBatch) -> bool:
    return frames.any_reply_starts(RESERVED_REPLIES)


def _with_queue(entry: str) -> tuple[str, str]:
    subject, _, queue = entry.partition(" ")
    return subject, queue.strip()


def _is_listed(entries: list[tuple[str, str]], pattern: str, queue: str) -> bool:
    """Tell whether an entry covers a pattern; for queue members, entries that name a queue take precedence."""
    covering = [own for subject, own in entries if pattern_covers(subject, pattern)]
    named = [own for own in covering if own]
    if queue and named:
        return any(pattern_covers(own, queue) for own in named)
    return "" in covering
