"""The tree of patterns says what matching every pattern one by one says, whatever it remembers."""

import time

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from strandline.broker.core import sublist
from strandline.broker.core.sublist import Sublist
from tests.effort import examples

TOKENS = st.sampled_from([b"a", b"b", b"c", b"*"])
PATTERNS = st.builds(
    lambda tokens, rest: b".".join(tokens + ([b">"] if rest else [])),
    st.lists(TOKENS, min_size=1, max_size=3),
    st.booleans(),
) | st.just(b">")
SUBJECTS = st.lists(st.sampled_from([b"a", b"b", b"c", b"d", b"*", b">"]), min_size=1, max_size=4).map(b".".join)
ODD_SUBJECTS = st.sampled_from([b"", b".", b"a.", b".a", b"a..b", b"a.b."])


def matches(pattern: bytes, subject: bytes) -> bool:
    ours, theirs = pattern.split(b"."), subject.split(b".")
    if b"" in theirs:
        return False
    if ours[-1] == b">":
        ours = ours[:-1]
        if len(theirs) <= len(ours):
            return False
        theirs = theirs[: len(ours)]
    return len(ours) == len(theirs) and all(one in (b"*", other) for one, other in zip(ours, theirs, strict=True))


class Patterns(RuleBasedStateMachine):
    """Patterns come and go; each is an entry of its own, even if it is the same pattern."""

    def __init__(self) -> None:
        super().__init__()
        self.sublist: Sublist[tuple[bytes, int], frozenset[tuple[bytes, int]]] = Sublist(frozenset)
        self.entries: list[tuple[bytes, int]] = []
        self.count = 0

    @rule(pattern=PATTERNS)
    def add(self, pattern: bytes) -> None:
        self.count += 1
        self.entries.append((pattern, self.count))
        self.sublist.add(pattern, self.entries[-1])

    @precondition(lambda self: self.entries)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        entry = self.entries.pop(data.draw(st.integers(0, len(self.entries) - 1)))
        self.sublist.remove(entry[0], entry)

    @rule(pattern=PATTERNS)
    def remove_one_that_is_not_there(self, pattern: bytes) -> None:
        self.sublist.remove(pattern, (pattern, 0))

    @rule(subject=SUBJECTS | ODD_SUBJECTS)
    def ask(self, subject: bytes) -> None:
        assert self.sublist.find(subject) == self.wanted(subject)
        assert set(self.sublist.entries(subject)) == self.wanted(subject)

    @rule(head=SUBJECTS, tails=st.lists(SUBJECTS | st.just(b""), min_size=1, max_size=4))
    def ask_for_many(self, head: bytes, tails: list[bytes]) -> None:
        subjects = [b"%b.%b" % (head, tail) for tail in tails]
        found = self.sublist.find_common(subjects)
        assert found is None or {found} == {self.wanted(subject) for subject in subjects}

    @invariant()
    def it_knows_how_many_there_are(self) -> None:
        assert len(self.sublist) == len(self.entries)

    def wanted(self, subject: bytes) -> frozenset[tuple[bytes, int]]:
        return frozenset(entry for entry in self.entries if matches(entry[0], subject))


TestPatterns = Patterns.TestCase
TestPatterns.settings = examples(60, stateful_step_count=30)


@given(st.lists(PATTERNS, max_size=6))
def test_nothing_is_left_of_patterns_that_are_gone(patterns: list[bytes]) -> None:
    tree: Sublist[bytes, bool] = Sublist(bool)
    for pattern in patterns:
        tree.add(pattern, pattern)
    for pattern in patterns:
        tree.remove(pattern, pattern)
    assert tree._root.is_empty()  # noqa: SLF001 - a leak would not be seen otherwise


def test_a_run_below_one_head_is_one_question() -> None:
    tree: Sublist[str, tuple[str, ...]] = Sublist(tuple)
    tree.add(b"$KV.B.>", "bucket")
    tree.add(b"_INBOX.x.*", "inbox")
    assert tree.find_common([b"$KV.B.k", b"$KV.B.a.b.c", b"$KV.B.z"]) == ("bucket",)
    assert tree.find_common([b"_INBOX.x.%d" % n for n in range(50)]) == ("inbox",)
    assert tree.find_common([b"_INBOX.x.1", b"_INBOX.x.1.2"]) is None
    assert tree.find_common([b"_INBOX.x.1", b"_INBOX.x."]) is None
    tree.add(b"_INBOX.x.7", "one inbox")
    assert tree.find(b"_INBOX.x.7") == ("one inbox", "inbox")
    assert tree.find(b"_INBOX.x.8") == ("inbox",)
    tree.add(b"$KV.B.a", "one key")
    assert tree.find_common([b"$KV.B.k", b"$KV.B.z"]) is None
    assert tree.find(b"$KV.B.a") == ("bucket", "one key")


def test_subjects_that_never_come_again_are_not_remembered() -> None:
    tree: Sublist[str, tuple[str, ...]] = Sublist(tuple)
    tree.add(b"$JS.ACK.>", "acks")
    for number in range(100):
        assert tree.find(b"$JS.ACK.S.C.1.%d.%d.1794724724829917591.5" % (number, number)) == ("acks",)
    assert len(tree._exact) + len(tree._tails) == 0  # noqa: SLF001
    assert tree.find(b"$JS.ACK.S..C") == ()
    tree.add(b"$JS.ACK.S.*.>", "consumer")
    assert tree.find(b"$JS.ACK.S.C.1.1.1.1794724724829917591.5") == ("acks", "consumer")


def test_many_entries_of_one_pattern_come_and_go_quickly() -> None:
    tree: Sublist[int, int] = Sublist(len)
    for number in range(20_000):
        tree.add(b"a", number)
    assert tree.find(b"a") == len(tree) == 20_000
    started = time.thread_time()
    for number in range(20_000):
        tree.remove(b"a", number)
    assert not tree.find(b"a")
    assert time.thread_time() - started < 5  # a search through all of them each time would take minutes


def test_what_is_remembered_is_bounded() -> None:
    tree: Sublist[str, tuple[str, ...]] = Sublist(tuple)
    tree.add(b"a.*.c", "all")
    for number in range(sublist.CACHED_MAX + 10):
        assert tree.find(b"a.%d.c" % number) == ("all",)
    assert len(tree._exact) + len(tree._tails) <= 2 * sublist.CACHED_MAX  # noqa: SLF001


def test_an_entry_that_changed_is_asked_for_anew() -> None:
    state = {"one": "before"}
    tree: Sublist[str, str] = Sublist(lambda entries: state[entries[0]] if entries else "")
    tree.add(b"a.b", "one")
    tree.add(b"a.*", "one")
    assert tree.find(b"a.b") == "before"
    state["one"] = "after"
    assert tree.find(b"a.b") == "before"
    tree.renew(b"a.b")
    assert tree.find(b"a.b") == "after"


def test_an_entry_that_changed_while_another_was_there_is_asked_for_anew() -> None:
    state = {"one": "before", "two": "other"}
    tree: Sublist[str, str] = Sublist(lambda entries: state[entries[0]] if entries else "")
    tree.add(b"a", "one")
    assert tree.find(b"a") == "before"
    tree.add(b"a", "two")
    state["one"] = "after"
    tree.renew(b"a")
    tree.remove(b"a", "two")
    assert tree.find(b"a") == "after"
