"""The directory of a replica: what fails is left out, comes back, and is looked for without a storm of requests."""

import threading
from dataclasses import dataclass

import pytest

from strandline.errors import Unavailable
from strandline.replica import Discovered, Leader, NodeRecord, ReplicaDirectory
from strandline.replica.directory import FAILURES_MAX, LOOK_AGAIN_S_MAX, PAUSE_S
from tests.waiting import PATIENCE_S, eventually

A, B, C = "http://a", "http://b", "http://c"


@dataclass
class Replica:
    """A replica as looks find it, and a clock that a test moves."""

    leader: str | None = A
    session: str = "s1"
    followers: tuple[str, ...] = ()
    failure: Exception | None = None
    now_s: float = 100.0
    looks: int = 0

    def look(self) -> Discovered:
        self.looks += 1
        if self.failure is not None:
            raise self.failure
        leader = Leader("l", self.leader, self.session, 1) if self.leader else None
        return Discovered(leader, [NodeRecord(each[-1], each, self.session, 1) for each in self.followers])

    def clock(self) -> float:
        return self.now_s

    def directory(self) -> ReplicaDirectory:
        """Return a directory that has looked once, and looks when a test says so."""
        found = ReplicaDirectory(self.look, clock=self.clock)
        found.look()
        return found


def failed(directory: ReplicaDirectory, address: str, times: int = FAILURES_MAX) -> None:
    """Note failures."""
    for _ in range(times):
        directory.note_failure(address)


def test_a_leader_that_failed_three_times_waits_for_a_new_session() -> None:
    replica = Replica()
    directory = replica.directory()
    failed(directory, A, FAILURES_MAX - 1)
    assert directory.leader() == A
    directory.note_failure(A)
    assert (directory.leader(), directory.reader()) == (None, None)
    directory.look()
    assert directory.leader() is None, "a look that names it at once says nothing new"
    replica.session = "s2"
    directory.look()
    assert directory.leader() == A, "what failed under another session counts no more"


def test_a_leader_comes_back_when_a_look_names_it_after_a_pause() -> None:
    replica = Replica()
    directory = replica.directory()
    failed(directory, A)
    replica.now_s += PAUSE_S
    assert directory.leader() is None, "the store has not named it since"
    directory.look()
    assert directory.leader() == A
    directory.note_failure(A)
    assert directory.leader() is None, "one more failure, and it rests again"
    replica.now_s += PAUSE_S
    directory.look()
    directory.note_success(A)
    failed(directory, A, FAILURES_MAX - 1)
    assert directory.leader() == A, "failures with a success between them do not count together"


def test_readers_take_turns_and_one_that_failed_rests() -> None:
    replica = Replica(followers=(B, C))
    directory = replica.directory()
    assert {directory.reader(), directory.reader()} == {B, C}
    assert directory.reader({B}) == C
    directory.note_failure(B)
    assert {directory.reader() for _ in range(4)} == {C}
    directory.note_failure(C)
    assert directory.reader() == A, "the leader reads where no follower does"
    assert directory.reader({A}) is None
    replica.now_s += PAUSE_S
    directory.look()
    assert {directory.reader(), directory.reader()} == {B, C}


def test_a_store_that_is_away_leaves_what_was_known() -> None:
    replica = Replica()
    for failure in (Unavailable("the store is away", hint=""), ValueError("a fault of a library")):
        replica.failure = None
        with ReplicaDirectory(replica.look) as directory:
            replica.failure = failure
            directory.look_soon()
            eventually(lambda: directory.error is not None)
            assert directory.leader() == A
            replica.failure, replica.session, replica.leader = None, f"after {failure}", B
            directory.look_soon()
            eventually(lambda: directory.leader() == B)
            assert directory.error is None
        replica.leader = A


def test_the_first_look_raises() -> None:
    with pytest.raises(Unavailable):
        ReplicaDirectory(Replica(failure=Unavailable("no such bucket", hint="")).look).start()


def test_a_leader_is_waited_for_and_looks_without_news_become_rare() -> None:
    replica = Replica(leader=None)
    with ReplicaDirectory(replica.look) as directory:
        assert directory.wait_for_leader(0.0) is None
        found: list[str | None] = []
        waiting = threading.Thread(target=lambda: found.append(directory.wait_for_leader(PATIENCE_S)))
        waiting.start()
        eventually(lambda: replica.looks > 3, "a question without an answer begins looks")
        eventually(lambda: directory._again_s == LOOK_AGAIN_S_MAX)  # noqa: SLF001 - the pause itself
        replica.leader = A
        waiting.join()
        assert found == [A]
