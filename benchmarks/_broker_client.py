"""A client for benchmarks alone: raw sockets, frames built beforehand, answers counted at once and checked afterwards.

Sending, receiving and counting are timed. All that was received stays in one buffer, and once the clock has stopped,
every acknowledgement, sequence, subject and payload in it is compared with what was sent. It runs in its own process.
"""

import json
import re
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Self

import numpy as np
import psutil

WAIT_S = 60.0
RECEIVE_BYTES = 1 << 20
INBOX = b"_INBOX.bench"
LETTERS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/"
DELIVERY = re.compile(rb"MSG (\S+) 1 \$JS\.ACK\.[^.]+\.[^.]+\.1\.(\d+)\.(\d+)\.\d+\.(\d+) \d+\r\n")
REPLY = re.compile(rb"MSG \S+ 1 (\$JS\.ACK\.\S+) \d+\r\n")
FLOW = re.compile(rb"HMSG \S+ 1 (\$JS\.FC\.\S+) ")
ROWS_AT_ONCE = 20_000
CONNECT = (
    b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true,"lang":"bench","version":"1"}\r\n'
)


class Target(NamedTuple):
    """A server under measurement."""

    port: int
    pid: int


class Measured(NamedTuple):
    """What a run took: seconds by the clock, and processor seconds of the server and of this client."""

    seconds: float
    server_s: float
    client_s: float


class Stopwatch:
    """Measures a block."""

    def __init__(self, pid: int) -> None:
        self._server = psutil.Process(pid)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Measure the block; `measured` has its figures afterwards."""
        server, client, began = _cpu_s(self._server), time.process_time(), time.perf_counter()
        yield
        seconds = time.perf_counter() - began
        self.measured = Measured(seconds, _cpu_s(self._server) - server, time.process_time() - client)


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


class Client:
    """One connection, and a buffer that keeps what it receives."""

    def __init__(self, port: int, room: int = 1 << 20) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = bytearray(room + RECEIVE_BYTES)
        self.buffer[::4096] = b"\1" * len(self.buffer[::4096])  # the pages are there before the clock runs
        self._view = memoryview(self.buffer)
        self.end = 0
        self.send(CONNECT)
        self.flush()
        self.end = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes | memoryview) -> None:
        """Send all of it."""
        self.socket.sendall(data)

    def receive(self) -> int:
        """Receive what is there, at least one byte; return where it begins in the buffer."""
        before = self.end
        count = self.socket.recv_into(self._view[before:], RECEIVE_BYTES)
        assert count, f"the server closed the connection: {bytes(self.buffer[max(before - 200, 0) : before])!r}"
        self.end = before + count
        return before

    def count(self, marker: bytes) -> int:
        """Receive, and return how many markers have come in whole by that."""
        before = self.receive()
        return self.buffer.count(marker, max(before - len(marker) + 1, 0), self.end)

    def flush(self) -> None:
        """Return when the server has read everything that was sent."""
        self.send(b"PING\r\n")
        self.wait_for(b"PONG\r\n")

    def wait_for(self, marker: bytes) -> None:
        """Return when a marker has come in."""
        while not self.count(marker):
            pass

    def finish(self, marker: bytes, size: int) -> None:
        """Receive the rest of the last message, whose line has a marker in it."""
        while (
            line_end := self.buffer.find(b"\r\n", self.buffer.rfind(marker, 0, self.end), self.end)
        ) < 0 or self.end < line_end + size + 4:
            self.receive()

    def received(self) -> bytes:
        """Return all that was received, but for the server's own pings."""
        return bytes(self._view[: self.end]).replace(b"PING\r\n", b"").replace(b"PONG\r\n", b"")


def request(port: int, subject: str, body: object = None) -> dict[str, object]:
    """Ask the API something and return its answer, which must not be an error."""
    payload = b"" if body is None else json.dumps(body).encode()
    with Client(port) as client:
        client.send(b"SUB %s.answer 1\r\nPUB %s %s.answer %d\r\n" % (INBOX, subject.encode(), INBOX, len(payload)))
        client.send(payload + b"\r\n")
        while (found := re.search(rb"MSG \S+ 1 (\d+)\r\n", client.received())) is None or (
            len(client.received()) < found.end() + int(found[1]) + 2
        ):
            client.receive()
        answer: dict[str, object] = json.loads(client.received()[found.end() : found.end() + int(found[1])])
    assert "error" not in answer, answer
    return answer


def state(port: int, stream: str) -> dict[str, int]:
    """Return the state of a stream."""
    answer = request(port, f"$JS.API.STREAM.INFO.{stream}")["state"]
    assert isinstance(answer, dict)
    return answer


def fresh_stream(port: int, stream: str, **config: object) -> None:
    """Make an empty stream, in the place of one of that name."""
    names = request(port, "$JS.API.STREAM.NAMES")["streams"] or ()
    assert isinstance(names, Sequence)
    if stream in names:
        request(port, f"$JS.API.STREAM.DELETE.{stream}")
    request(port, f"$JS.API.STREAM.CREATE.{stream}", {"name": stream, "storage": "file", **config})


def fresh_bucket(port: int, bucket: str) -> None:
    """Make an empty bucket as clients do, in the place of one of that name."""
    fresh_stream(
        port,
        f"KV_{bucket}",
        subjects=[f"$KV.{bucket}.>"],
        max_msgs_per_subject=1,
        discard="new",
        allow_rollup_hdrs=True,
        deny_delete=True,
        allow_direct=True,
    )


def numbered(template: bytes, count: int, start: int = 0) -> memoryview:
    """Return `count` copies of a frame: runs of # are its number, runs of % its number modulo a thousand."""
    rows = np.tile(np.frombuffer(template, np.uint8), (count, 1))
    numbers = np.arange(start, start + count)[:, None]
    for run in re.finditer(rb"#+|%+", template):
        powers = 10 ** np.arange(run.end() - run.start() - 1, -1, -1)
        shown = numbers % 1000 if run[0][:1] == b"%" else numbers
        rows[:, run.start() : run.end()] = shown // powers % 10 + ord("0")
    return rows.reshape(-1).data


def payload_of(size: int) -> bytes:
    """Return the template of a payload."""
    return (b"#########" + LETTERS * (size // len(LETTERS) + 1))[:size]


def key_of(bucket: str) -> bytes:
    """Return the template of a key's subject."""
    return b"$KV.%s.device.%%%%%%%%.#########" % bucket.encode()


def publish(target: Target, stream: str, subject: bytes, count: int, size: int, window: int) -> Measured:
    """Publish to a stream, with so many publishes waiting for their acknowledgement at most."""
    before = state(target.port, stream)["last_seq"]
    frame = b"PUB %s %s.######### %d\r\n%s\r\n" % (subject, INBOX, size, payload_of(size))
    frames = numbered(frame, count, before)
    marker = b"MSG " + INBOX
    watch = Stopwatch(target.pid)
    with Client(target.port, count * 96) as client:
        client.send(b"SUB %s.* 1\r\n" % INBOX)
        client.flush()
        client.end = 0
        with watch.running():
            client.send(frames[: window * len(frame)])
            sent, answered = min(window, count), 0
            while answered < count:
                more = client.count(marker)
                answered += more
                if more and sent < count:
                    client.send(frames[sent * len(frame) : (sent + more) * len(frame)])
                    sent = min(sent + more, count)
            while not client.buffer.endswith(b"}\r\n", 0, client.end):
                client.receive()
        _check_acks(client.received(), stream, before, count)
    after = state(target.port, stream)
    assert after["last_seq"] == before + count, after
    assert after["messages"] == before + count, after
    return watch.measured


def _check_acks(data: bytes, stream: str, before: int, count: int) -> None:
    pattern = rb'MSG %s\.(\d{9}) 1 \d+\r\n\{"stream":"%s","seq":(\d+)\}\r\n' % (re.escape(INBOX), stream.encode())
    found = re.findall(pattern, data)
    assert len(found) == count, (len(found), count, data[:300])
    replies, sequences = (np.array(column, "S12").astype(np.int64) for column in zip(*found, strict=True))
    assert (replies == np.arange(before, before + count)).all(), "acknowledgements are out of order"
    assert (sequences == replies + 1).all(), "a publish has another sequence than its place"


def fetch(target: Target, stream: str, subject: bytes, count: int, size: int, *, acks: bool) -> Measured:
    """Fetch a whole stream by a thousand messages a request, one request after the other, with acks or without."""
    config = {
        "durable_name": f"acks-{acks}",
        "ack_policy": "explicit" if acks else "none",
        "max_ack_pending": 10_000 if acks else 0,
    }
    name = f"acks-{acks}"
    request(target.port, f"$JS.API.CONSUMER.DURABLE.CREATE.{stream}.{name}", {"stream_name": stream, "config": config})
    watch = Stopwatch(target.pid)
    with Client(target.port, count * (size + 160)) as client:
        client.send(b"SUB %s.fetched 1\r\nSUB %s.synced 2\r\n" % (INBOX, INBOX))
        client.flush()
        client.end = 0
        with watch.running():
            _fetch_all(client, f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}".encode(), count, size, acks=acks)
        _check_deliveries(client, numbered(subject, count), size)
    info = request(target.port, f"$JS.API.CONSUMER.INFO.{stream}.{name}")
    assert (info["num_pending"], info["num_ack_pending"]) == (0, 0), info
    request(target.port, f"$JS.API.CONSUMER.DELETE.{stream}.{name}")
    return watch.measured


def _fetch_all(client: Client, subject: bytes, count: int, size: int, *, acks: bool) -> None:
    body = b'{"batch":1000,"expires":30000000000}'
    pull = b"PUB %s %s.fetched %d\r\n%s\r\n" % (subject, INBOX, len(body), body)
    fetched = seen = 0
    last = b""
    client.send(pull)
    while fetched < count:
        client.receive()
        lines_end = client.buffer.rfind(b"\r\n", seen, client.end) + 2
        if lines_end < seen + 2:
            continue
        replies = REPLY.findall(client.buffer, seen, lines_end) if acks else ()
        more = len(replies) if acks else client.buffer.count(b" $JS.ACK.", seen, lines_end)
        seen = lines_end
        answer = b"PUB %s 4\r\n+ACK\r\n" % b" 4\r\n+ACK\r\nPUB ".join(replies) if replies else b""
        if more and (fetched + more) % 1000 == 0 and fetched + more < count:
            answer += pull
        fetched += more
        last = replies[-1] if replies else last
        if answer:
            client.send(answer)
    client.finish(b" $JS.ACK.", size)
    if acks:
        client.send(b"PUB %s %s.synced 4\r\n+ACK\r\n" % (last, INBOX))
        client.wait_for(b"MSG %s.synced" % INBOX)


def _check_deliveries(client: Client, subjects: memoryview, size: int) -> None:
    """Every message is there once, in order, with its subject, its counts and its payload."""
    found = list(DELIVERY.finditer(client.received()))
    data = np.frombuffer(client.received(), np.uint8)
    count = len(found)
    assert b"".join([each[1] for each in found]) == subjects.tobytes(), "subjects differ"
    sequences, places, pending = (
        np.array([each[group] for each in found], "S12").astype(np.int64) for group in (2, 3, 4)
    )
    assert (sequences == np.arange(1, count + 1)).all(), "sequences are out of order"
    assert (places == sequences).all(), "consumer sequences are out of order"
    assert (pending == count - places).all(), "pending counts are not exact"
    begins = np.array([each.end() for each in found])
    for first in range(0, count, ROWS_AT_ONCE):
        rows = begins[first : first + ROWS_AT_ONCE]
        wanted = np.frombuffer(numbered(payload_of(size), len(rows), first), np.uint8)
        assert (data[rows[:, None] + np.arange(size)].reshape(-1) == wanted).all(), "payloads differ"


def watch_keys(target: Target, bucket: str, count: int, size: int) -> Measured:
    """Watch a bucket as clients do, with an ordered consumer and flow control, until its whole state is there."""
    config = {
        "deliver_subject": "_INBOX.bench.watched",
        "deliver_policy": "last_per_subject",
        "filter_subject": f"$KV.{bucket}.>",
        "ack_policy": "none",
        "max_deliver": 1,
        "ack_wait": 22 * 3600 * 10**9,
        "flow_control": True,
        "idle_heartbeat": 5 * 10**9,
        "mem_storage": True,
        "num_replicas": 1,
        "replay_policy": "instant",
    }
    body = json.dumps({"stream_name": f"KV_{bucket}", "config": config}).encode()
    create = b"PUB $JS.API.CONSUMER.CREATE.KV_%s %s.made %d\r\n%s\r\n" % (bucket.encode(), INBOX, len(body), body)
    stopwatch = Stopwatch(target.pid)
    with Client(target.port, count * (size + 160)) as client:
        client.send(b"SUB %s.watched 1\r\nSUB %s.made 2\r\n" % (INBOX, INBOX))
        client.flush()
        client.end = 0
        with stopwatch.running():
            client.send(create)
            watched = seen = 0
            while watched < count:
                watched += client.count(b" $JS.ACK.")
                seen = _answer_flow(client, seen)
            client.finish(b" $JS.ACK.", size)
        _check_deliveries(client, numbered(key_of(bucket), count), size)
    return stopwatch.measured


def _answer_flow(client: Client, seen: int) -> int:
    """Answer a request of flow control, if one came in since; return from where on to look next time."""
    asked = b"FlowControl Request"
    at = client.buffer.find(asked, seen, client.end)
    if at < 0:
        return max(seen, client.end - len(asked) + 1)
    *_, found = FLOW.finditer(client.buffer, max(at - 300, 0), at)
    client.send(b"PUB %s 0\r\n\r\n" % found[1])
    return at + len(asked)


def core_publish(target: Target, count: int, size: int) -> Measured:
    """Publish what nobody listens to, until the server has read it all."""
    frames = numbered(b"PUB bench.core %d\r\n%s\r\n" % (size, payload_of(size)), 2_000)
    stopwatch = Stopwatch(target.pid)
    with Client(target.port) as client:
        with stopwatch.running():
            for _ in range(count // 2_000):
                client.send(frames)
            client.flush()
        assert b"-ERR" not in client.received()
    return stopwatch.measured


def core_pub_sub(target: Target, count: int, size: int) -> Measured:
    """Publish on one connection what another listens to."""
    sent = numbered(b"PUB bench.core %d\r\n%s\r\n" % (size, payload_of(size)), count)
    wanted = numbered(b"MSG bench.core 1 %d\r\n%s\r\n" % (size, payload_of(size)), count)
    stopwatch = Stopwatch(target.pid)
    with Client(target.port) as publisher, Client(target.port, len(wanted) + 64) as client:
        client.send(b"SUB bench.core 1\r\n")
        client.flush()
        client.end = 0
        sending = threading.Thread(target=publisher.send, args=(sent,))
        with stopwatch.running():
            sending.start()
            while client.end < len(wanted):
                client.receive()
        sending.join()
        while len(client.received()) < len(wanted):
            client.receive()
        same = np.frombuffer(client.received(), np.uint8) == np.frombuffer(wanted, np.uint8)
        assert same.all(), "what was heard is not what was sent"
    return stopwatch.measured
