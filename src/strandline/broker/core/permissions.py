"""What a user may publish and subscribe to.

Invariants: a rule without an allow list allows everything that it does not deny. A pattern may be subscribed to only if
one allowed pattern covers all of it and no denied one does; where it overlaps a denied one, the messages are filtered
when they are delivered, whatever subscription they would come by. (nats-server lets `a.>` pass where `a.*` is allowed;
this does not.) An entry `subject queue` of a subscribe rule is about members of that queue group alone.

A user with a rule for responses may also publish to the reply subject of a message that it was sent: so often, so long.
"""

from collections.abc import Iterable

from strandline.broker.core.sublist import Sublist
from strandline.broker.settings import Permissions, ResponseRule, Rule
from strandline.clock import NS_PER_S
from strandline.wire import has_wildcard, pattern_covers, patterns_overlap

RESPONSES_MAX = 1 << 16


class Subjects:
    """Some patterns, to be asked about subjects, one or many at a time."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self.patterns = tuple(patterns)
        self._sublist: Sublist[str, bool] = Sublist(bool)
        for pattern in self.patterns:
            self._sublist.add(pattern.encode(), pattern)

    def has(self, subject: bytes) -> bool:
        """Tell whether a subject is one of a pattern's."""
        return self._sublist.find(subject)

    def common(self, subjects: list[bytes]) -> bool | None:
        """Return the answer for all of some subjects, None if it has to be asked for each."""
        return self._sublist.find_common(subjects)


class Denied:
    """What is filtered from what is subscribed to; an entry with a queue is about members of that queue group."""

    def __init__(self, entries: list[tuple[str, str]]) -> None:
        self._entries = entries
        self._all = Subjects(pattern for pattern, queue in entries if not queue)
        self._queued = [(Subjects([pattern]), queue) for pattern, queue in entries if queue]

    def has(self, subject: bytes, queue: bytes) -> bool:
        """Tell whether a subject must not be delivered."""
        if self._all.has(subject):
            return True
        name = queue.decode(errors="surrogateescape")
        return bool(queue) and any(pattern_covers(own, name) and each.has(subject) for each, own in self._queued)

    def overlaps(self, pattern: str, queue: str) -> bool:
        """Tell whether some subject of a pattern must not be delivered."""
        return any(
            patterns_overlap(denied, pattern) and (not own or (queue and pattern_covers(own, queue)))
            for denied, own in self._entries
        )


class PublishRights:
    """What may be published."""

    def __init__(self, rule: Rule, responses: ResponseRule | None) -> None:
        allow = () if rule.allow is None and responses is not None else rule.allow
        self._allow = None if allow is None else Subjects(allow)
        self._deny = Subjects(rule.deny)

    def allows_all(self, subjects: list[bytes]) -> bool:
        """Tell whether it is plain that all of some subjects are allowed; if not, they have to be asked for singly."""
        if self._allow is not None and not self._allow.common(subjects):
            return False
        return not self._deny.patterns or self._deny.common(subjects) is False

    def allows(self, subject: bytes) -> bool:
        """Tell whether a subject may be published to."""
        return (self._allow is None or self._allow.has(subject)) and not self._deny.has(subject)


class SubscribeRights:
    """What may be subscribed to, and what is filtered from what is subscribed."""

    def __init__(self, rule: Rule) -> None:
        self._allow = None if rule.allow is None else [_with_queue(entry) for entry in rule.allow]
        self._deny = [_with_queue(entry) for entry in rule.deny]
        self.denied = Denied(self._deny)

    def allows(self, pattern: str, queue: str) -> bool:
        """Tell whether a pattern may be subscribed to, with a queue or without."""
        if self._allow is not None and not _is_listed(self._allow, pattern, queue):
            return False
        return not _is_listed(self._deny, pattern, queue)

    def needs_filter(self, pattern: str, queue: str) -> bool:
        """Tell whether some subjects of an allowed pattern are denied."""
        return has_wildcard(pattern) and self.denied.overlaps(pattern, queue)


class Responses:
    """The reply subjects that a user may answer to, each until it is used up or its time is over."""

    def __init__(self, rule: ResponseRule) -> None:
        self._messages_max = rule.max_messages
        self._time_ns = int(rule.expires_s * NS_PER_S)
        self._replies: dict[bytes, tuple[int, int]] = {}

    def expect(self, replies: Iterable[bytes], now_ns: int) -> None:
        """Allow answers to reply subjects of messages that are delivered now."""
        for reply in replies:
            if reply:
                self._replies.pop(reply, None)
                self._replies[reply] = self._messages_max, now_ns + self._time_ns
        while self._replies and len(self._replies) > RESPONSES_MAX:
            self._replies.pop(next(iter(self._replies)))

    def use(self, subject: bytes, now_ns: int) -> bool:
        """Tell whether a subject may be answered to, and count the answer."""
        left, until_ns = self._replies.get(subject, (0, 0))
        if not left or (self._time_ns > 0 and now_ns > until_ns):
            self._replies.pop(subject, None)
            return False
        if left > 0:
            self._replies[subject] = left - 1, until_ns
        return True


class Rights:
    """The permissions of one connection; None in place of a part is everything."""

    def __init__(self, permissions: Permissions) -> None:
        publish, responses = permissions.publish, permissions.responses
        self.publish = None if publish is None and responses is None else PublishRights(publish or Rule(), responses)
        self.subscribe = None if permissions.subscribe is None else SubscribeRights(permissions.subscribe)
        self.responses = None if responses is None else Responses(responses)


def _with_queue(entry: str) -> tuple[str, str]:
    subject, _, queue = entry.partition(" ")
    return subject, queue.strip()


def _is_listed(entries: list[tuple[str, str]], pattern: str, queue: str) -> bool:
    """Tell whether an entry covers a pattern; about members of queues those with a queue decide, if there are any."""
    covering = [own for subject, own in entries if pattern_covers(subject, pattern)]
    named = [own for own in covering if own]
    if queue and named:
        return any(pattern_covers(own, queue) for own in named)
    return "" in covering
