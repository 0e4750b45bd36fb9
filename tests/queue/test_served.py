"""A queue that one process owns and others use: through a socket, with the same promises, whoever is killed."""

import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline import errors
from strandline.errors import (
    Closed,
    CommitFailed,
    FormatError,
    InvalidInput,
    Locked,
    OffsetsLost,
    RecordTooLarge,
    StaleDelivery,
    StorageRefused,
    StrandlineError,
    Unavailable,
    UnknownOutcome,
)
from strandline.journal import JournalConfig
from strandline.queue import GroupStatus, Queue, QueueConfig, QueueServer, format_address
from strandline.queue.frames import format_error, format_frame, parse_error, parse_frame
from strandline.queue.server import parse_address
from tests.queue.child_process import ROOT
from tests.waiting import eventually

WAIT_S = 120.0
HOUR_S = 3600.0
COMMAND = "from strandline.cli.app import main; main()"


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder whose path is short enough for a socket."""
    with TemporaryDirectory(prefix="strandline-") as folder:
        yield Path(folder)


class Child:
    """Another process, and what it said so far."""

    def __init__(self, *command: str) -> None:
        self._said: list[list[str]] = []
        self.process = subprocess.Popen(
            [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
        )

    def hear(self) -> list[str]:
        """Return the words of its next line."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            _, trouble = self.process.communicate()
            raise AssertionError(f"it ended: {trouble}")
        self._said.append(line.split())
        return self._said[-1]

    def rest(self) -> list[list[str]]:
        """Return all that it said until it ended, without a line that was cut off."""
        assert self.process.stdout is not None
        said = self.process.stdout.read()
        return self._said + [line.split() for line in said.splitlines(keepends=True) if line.endswith("\n")]

    def kill(self) -> None:
        self.process.kill()

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=WAIT_S)
        return self.process.returncode


@contextmanager
def child(*command: str | Path) -> Iterator[Child]:
    started = Child(*map(str, command))
    try:
        yield started
    finally:
        started.kill()
        started.process.wait(WAIT_S)
        for pipe in (started.process.stdout, started.process.stderr):
            if pipe is not None:
                pipe.close()


@contextmanager
def owner(folder: Path) -> Iterator[Child]:
    """Another process that serves the queue in `folder`."""
    with child("-c", COMMAND, "queue", "serve", folder) as started:
        assert started.hear() == ["serving", format_address(folder / "socket")]
        yield started


# Opening and connecting.


def test_a_second_opener_is_told_of_the_way_that_there_is(place: Path) -> None:
    folder = place / "q"
    address = format_address(folder / "socket")
    with Queue.open(folder) as queue:
        with pytest.raises(Locked) as caught:
            Queue.open(folder)
        assert caught.value.hint is not None
        for word in ("one process owns a queue", "queue.serve()", f"strandline queue serve {folder}", address):
            assert word in caught.value.hint
        with queue.serve(), pytest.raises(Locked) as caught:
            Queue.open(folder)
        assert caught.value.hint == f'one process owns a queue, and another has it open; use Queue.connect("{address}")'


def test_the_owner_and_others_share_one_queue(place: Path) -> None:
    with (
        Queue.open(place / "q") as queue,
        queue.serve() as server,
        Queue.connect(server.address) as other,
        Queue.connect(server.address) as third,
    ):
        assert other.put_many([b"a", b"b"], keys=[b"k", b"l"], headers=[b"h", b""]).base_offset == 0
        assert third.put(b"c") == 2
        first, second = islice(other.take("workers", prefetch=2), 2)
        assert (first.value, first.key, first.headers) == (b"a", b"k", b"h")
        assert (second.value, second.key, second.headers) == (b"b", b"l", b"")
        (last,) = third.take("workers")
        assert last.value == b"c"
        first.ack()
        assert queue.status() == other.status() == third.status() == [GroupStatus("workers", 1, 2, 0, 2)]


def test_only_its_owner_may_use_the_socket_and_it_goes_with_the_server(place: Path) -> None:
    with Queue.in_memory() as queue:
        path = place / "socket"
        with queue.serve(path) as server:
            mode = path.stat().st_mode
            assert stat.S_ISSOCK(mode)
            assert stat.S_IMODE(mode) == 0o600
            assert server.address == f"unix://{path}"
            assert repr(server) == f"QueueServer('unix://{path}', connections=0)"
        assert not path.exists()
        server.close()
        with queue.serve(path):
            queue.close()
        assert not path.exists()


def test_a_place_that_is_taken_is_refused_and_a_stale_socket_replaced(place: Path) -> None:
    with Queue.in_memory() as queue:
        (place / "file").write_text("something")
        with pytest.raises(StorageRefused, match="not a socket"):
            queue.serve(place / "file")
        assert (place / "file").read_text() == "something"
        with queue.serve(place / "socket"), pytest.raises(Locked, match="socket is locked"):
            queue.serve(place / "socket")
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(str(place / "socket"))
        with queue.serve(place / "socket") as server, Queue.connect(server.address) as other:
            assert other.put(b"a") == 0
        with pytest.raises(InvalidInput, match="too long"):
            queue.serve(place / ("x" * 200))
        with pytest.raises(StorageRefused):
            queue.serve(place / "missing" / "socket")
        with pytest.raises(InvalidInput, match="no folder"):
            queue.serve()


def test_where_nothing_is_served_it_is_said_at_once(place: Path) -> None:
    began = time.monotonic()
    with pytest.raises(Unavailable, match="no queue answers") as caught:
        Queue.connect(format_address(place / "socket"), timeout_s=600)
    assert time.monotonic() - began < WAIT_S
    assert caught.value.hint is not None
    assert "strandline queue serve" in caught.value.hint
    for wrong in ("/var/socket", "unix://", "tcp://localhost"):
        with pytest.raises(InvalidInput, match="not the address"):
            Queue.connect(wrong)
    with pytest.raises(InvalidInput, match="timeout_s"):
        Queue.connect("unix:///x", timeout_s=0)


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_bytes_that_are_no_request_end_only_their_connection(place: Path) -> None:
    with Queue.in_memory() as queue, queue.serve(place / "socket") as server, Queue.connect(server.address) as other:
        hello = format_frame(["hello", {"protocol": "strandline-queue", "version": 1, "session": "s"}])
        for data in (
            b"GET / HTTP/1.1\r\n\r\n",
            bytes(64),
            b"\xff" * 64,
            format_frame({"a": 1}),
            format_frame(["hello", {}]),
            hello + format_frame(["put", 5]),
            hello + format_frame("put"),
            hello + b"\0\0\0\x08\0\0\0\x09{}{}",
            hello + b'\0\0\0\x14\0\0\0\x10{"$bytes":1e999}',
        ):
            with socket.socket(socket.AF_UNIX) as stranger:
                stranger.settimeout(WAIT_S)
                stranger.connect(str(place / "socket"))
                stranger.sendall(data)
                stranger.shutdown(socket.SHUT_WR)
                with suppress(ConnectionResetError):
                    while stranger.recv(4096):
                        pass
        assert other.put(b"a") == 0


def test_another_version_is_refused_with_a_hint(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Queue.in_memory() as queue, queue.serve(place / "socket") as server:
        monkeypatch.setattr("strandline.queue.remote.VERSION", 9)
        with pytest.raises(FormatError, match="version 9 of the queue's protocol"):
            Queue.connect(server.address)


# Errors.


def test_errors_of_the_owner_arrive_as_what_they_are(place: Path) -> None:
    config = QueueConfig(journal=JournalConfig(record_bytes_max=1024))
    with Queue.open(place / "q", config) as queue, queue.serve() as server, Queue.connect(server.address) as other:
        with pytest.raises(RecordTooLarge) as large:
            other.put(b"x" * 1025)
        assert (large.value.size, large.value.limit) == (1025, 1024)
        other.put(b"a")
        (job,) = other.take("workers", visibility_s=HOUR_S)
        queue.remove_group("workers")
        with pytest.raises(InvalidInput, match="no group 'workers'"):
            job.ack()
        (job,) = other.take("workers", visibility_s=HOUR_S)
        job.nack()
        with pytest.raises(StaleDelivery) as stale:
            job.nack()
        assert (stale.value.offset, stale.value.epoch, stale.value.hint) == (0, 1, StaleDelivery(0, 1).hint)
        with pytest.raises(InvalidInput, match="sequence of bytes"):
            other.put_many(["text"])  # type: ignore[list-item]
        with pytest.raises(InvalidInput, match="not one"):
            other.put_many(b"abc")  # type: ignore[arg-type]


EXAMPLES = [
    OffsetsLost(3, 9, 0, 20),
    StaleDelivery(3, 1),
    CommitFailed("/q", "no space"),
    Locked("/q"),
    RecordTooLarge(11, 10),
    Closed("the queue"),
    InvalidInput("wrong", hint="do it right"),
]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_is_the_same_on_the_other_side(error: StrandlineError) -> None:
    there = parse_error(parse_frame(format_frame(format_error(error, "put"))[4:]))
    assert type(there) is type(error)
    assert (str(there), there.__dict__, there.retryable) == (str(error), error.__dict__, error.retryable)


def test_an_error_that_is_not_ours_is_an_unknown_outcome() -> None:
    there = parse_error(format_error(ZeroDivisionError("division by zero"), "put"))
    assert type(there) is UnknownOutcome
    assert "put failed in the process that owns the queue: ZeroDivisionError" in str(there)
    assert all(
        issubclass(kind, StrandlineError) for kind in [type(parse_error(format_error(e, "x"))) for e in EXAMPLES]
    )
    assert errors.StrandlineError in type(there).__mro__


BODIES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(BODIES)
def test_frames_come_back_as_they_went(body: object) -> None:
    frame = format_frame(body)
    assert len(frame) == 4 + int.from_bytes(frame[:4], "big")
    assert parse_frame(frame[4:]) == body


def test_addresses_come_back_as_they_went(place: Path) -> None:
    assert parse_address(format_address(place / "socket")) == place / "socket"


# Processes that die.


def test_what_a_killed_taker_held_is_given_to_the_next_at_once(place: Path) -> None:
    with owner(place / "q"), Queue.connect(format_address(place / "q" / "socket")) as queue:
        queue.put_many([b"%d" % number for number in range(5)])
        with child("-m", "tests.queue.remote_child", "take", format_address(place / "q" / "socket"), "g", "3") as taker:
            assert taker.hear() == ["taken", "0", "1", "2"]
            assert [status.in_flight for status in queue.status()] == [3]
            taker.kill()
        seen = {}
        for job in queue.take("g", visibility_s=HOUR_S, wait_s=WAIT_S):
            seen[job.offset] = job.deliveries
            job.ack()
            if len(seen) == 5:
                break
        assert seen == {0: 2, 1: 2, 2: 2, 3: 1, 4: 1}


def test_closing_a_connection_gives_back_what_was_taken(place: Path) -> None:
    with Queue.open(place / "q") as queue, queue.serve() as server:
        queue.put_many([b"a", b"b"])
        other = Queue.connect(server.address)
        held = list(other.take("g", visibility_s=HOUR_S))
        held[0].ack()
        other.close()
        other.close()
        with pytest.raises(Closed):
            other.put(b"x")
        job = next(queue.take("g", wait_s=WAIT_S))
        assert (job.offset, job.deliveries) == (1, 2)


def test_a_forked_child_has_a_session_of_its_own(place: Path) -> None:
    with Queue.open(place / "q") as queue, queue.serve() as server, Queue.connect(server.address) as other:
        queue.put_many([b"a", b"b"])
        mine = next(other.take("g", visibility_s=HOUR_S))
        pid = os.fork()
        if not pid:
            status = 1
            try:
                other.put(b"c")
                status = 0 if next(other.take("g", visibility_s=HOUR_S)).offset == 1 else 2
                other.close()
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        given = [job.offset for job in islice(queue.take("g", visibility_s=HOUR_S, wait_s=WAIT_S), 2)]
        assert sorted(given) == [1, 2], "the child gave back what it took, and nothing of its parent"
        mine.ack()
        assert other.put(b"d") == 3


def test_a_server_without_a_thread_for_a_connection_ends_that_one_alone(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Queue.in_memory() as queue, queue.serve(place / "socket") as server:
        start, refused = threading.Thread.start, list[str]()

        def start_but_one(thread: threading.Thread) -> None:
            if thread.name == "strandline-queue" and not refused:
                refused.append(thread.name)
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", start_but_one)
        with pytest.raises(Unavailable):
            Queue.connect(server.address)
        with Queue.connect(server.address) as other:
            assert other.put(b"a") == 0
        assert refused


def test_a_client_waits_while_others_wait_to_be_accepted(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    accept, may_accept = socket.socket.accept, threading.Event()

    def accept_later(listener: socket.socket) -> object:
        may_accept.wait(WAIT_S)
        return accept(listener)

    def sleep_and_let_accept(_: float) -> None:
        may_accept.set()
        pause(0.001)

    monkeypatch.setattr(socket.socket, "accept", accept_later)
    pause = time.sleep
    with Queue.in_memory() as queue, queue.serve(place / "socket") as server, ExitStack() as stack:
        with suppress(BlockingIOError):
            while True:
                waiting = stack.enter_context(socket.socket(socket.AF_UNIX))
                waiting.setblocking(False)
                waiting.connect(str(place / "socket"))
        monkeypatch.setattr("strandline.queue.remote.time.sleep", sleep_and_let_accept)
        with Queue.connect(server.address) as other:
            assert other.put(b"a") == 0


def test_a_killed_owner_loses_nothing_that_was_acknowledged(place: Path) -> None:
    """Putters and workers in processes of their own; the owner is killed in the middle, twice, and comes back."""
    folder, address = place / "q", format_address(place / "q" / "socket")
    run = ("-m", "tests.queue.remote_child")
    with ExitStack() as held:
        owners = [held.enter_context(owner(folder))]
        putters = [held.enter_context(child(*run, "put", address, name)) for name in ("a", "b")]
        worker = held.enter_context(child(*run, "work", address, "g"))
        for _ in range(2):
            _hear_some(putters, worker)
            owners[-1].kill()
            owners.append(held.enter_context(owner(folder)))
        _hear_some(putters, worker)
        for process in (*putters, worker):
            process.kill()
        assert owners[-1].end() == 0
        said = [words for process in putters for words in process.rest()]
        work = worker.rest()
    put = {words[1]: int(words[2]) for words in said if words[0] == "put"}
    tried = {words[1] for words in said if words[0] == "putting"}
    acked = {int(words[1]) for words in work if words[0] == "acked"}
    assert len(put) >= 120
    assert len(acked) >= 60
    with Queue.open(folder) as queue:
        there = {job.value.decode(): job.offset for job in queue.take("check", prefetch=100)}
        assert there.items() >= put.items()
        assert set(there) <= tried
        assert not acked & {job.offset for job in queue.take("g", prefetch=100)}


def _hear_some(putters: list[Child], worker: Child) -> None:
    """Listen until each of them has done some work with the owner of the moment."""
    for process, word in (*((putter, "put") for putter in putters), (worker, "acked")):
        for _ in range(20):
            while process.hear()[0] != word:
                pass


def test_a_put_without_an_answer_has_an_unknown_outcome(place: Path) -> None:
    """An owner that takes the request and is gone before it answers."""
    path = place / "socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def answer_hello_and_end() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(format_frame({"ok": {}}))
                connection.recv(4096)

        owner_of_nothing = threading.Thread(target=answer_hello_and_end, daemon=True)
        owner_of_nothing.start()
        with Queue.connect(format_address(path), timeout_s=WAIT_S) as queue:
            with pytest.raises(UnknownOutcome, match="before the answer to put") as caught:
                queue.put(b"a")
            assert caught.value.hint is not None
            assert "may or may not" in caught.value.hint
        owner_of_nothing.join(WAIT_S)


def test_an_owner_that_does_not_answer_is_not_waited_for_beyond_the_limit(place: Path) -> None:
    address = format_address(place / "q" / "socket")

    def connected() -> Queue | None:
        with suppress(Unavailable):  # the owner may be slow
            return Queue.connect(address, timeout_s=0.2)
        return None

    with owner(place / "q") as there, Queue.connect(address, timeout_s=WAIT_S) as queue:
        queue.put(b"a")
        hasty = eventually(connected)
        assert hasty is not None
        there.process.send_signal(signal.SIGSTOP)
        os.waitpid(there.process.pid, os.WUNTRACED)
        try:
            with hasty, pytest.raises(Unavailable):
                hasty.status()
            with pytest.raises((UnknownOutcome, Unavailable)):
                hasty.put(b"b")
        finally:
            there.process.send_signal(signal.SIGCONT)
        assert queue.status() == []


def test_the_command_serves_until_it_is_told_to_end_and_status_asks_it(place: Path) -> None:
    folder = place / "q"
    with child("-c", COMMAND, "queue", "serve", folder, "--json", "--deliveries-max", "1") as there:
        assert there.hear() == ['{"address":', f'"{format_address(folder / "socket")}",', '"folder":', f'"{folder}"}}']
        with Queue.connect(format_address(folder / "socket")) as queue:
            queue.put(b"a")
            next(queue.take("g")).nack()
            assert [letter.value for letter in queue.dead_letters("g")] == [b"a"]
        assert there.end() == 0
    assert not (folder / "socket").exists()


def test_servers_can_be_many_and_close_by_themselves(place: Path) -> None:
    queue = Queue.open(place / "q")
    servers: list[QueueServer] = [queue.serve(place / name) for name in ("one", "two")]
    others = [Queue.connect(server.address) for server in servers]
    assert [other.put(b"x") for other in others] == [0, 1]
    queue.close()
    for other in others:
        other.close()
    assert not list(place.glob("o*")) + list(place.glob("t*"))
