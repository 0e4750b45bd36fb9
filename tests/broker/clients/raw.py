"""A client as bare as can be, that writes down what it asked and what it heard, so that two servers can be compared.

Invariants: what is written down holds no times, ids or addresses: those are replaced by words that are the same for
both servers. Header lines, their order, JSON keys and their order, subjects and statuses are kept. A server's own PING
is answered and not written down: when it comes is a matter of time. So may be where two servers part, if a machine
stalls longer than a script allows for: such a script is gone through again, more slowly.
"""

import json
import re
import socket
import time
import uuid
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.waiting import PATIENCE_S

WITHIN_S = PATIENCE_S
QUIET_S = 0.15
"""How long nothing comes where nothing is to come; it is counted from an answer to a PING."""
TENTH_NS = 100_000_000
PACES = (1, 8, 40)
"""By how much the times of a script are longer, from one try to the next."""

_PING = re.compile(rb"^ping[ \t]*\r?$", re.IGNORECASE | re.MULTILINE)

Body = str | bytes | dict[str, Any] | None
Headers = Mapping[str, str] | bytes | None

_REPLACED = [
    (re.compile(r"_INBOX\.[0-9a-f]{32}\."), "_INBOX.raw."),
    (re.compile(r'"(?:xkey|git_commit|go)":"[^"]*",?|(?<=}) $'), ""),
    (re.compile(r",}$"), "}"),
    (re.compile(r"\b(?!0001|2099|2024)\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z"), "<time>"),
    (re.compile(r"\b1[6-9]\d{17}\b"), "<ns>"),
    (re.compile(r'("(?:pause_remaining|active|rtt|uptime|cid|client_id|port)":) ?[^,}]+'), r"\1<n>"),
    (re.compile(r'("(?:id|nonce)":) ?"[^"]*"'), r"\1<id>"),
    (re.compile(r"\bN[A-Z2-7]{55}\b"), "<server>"),
    (re.compile(r'("flags":\d,"seq":)\d+'), r"\1<n>"),
    (re.compile(r"(Nats-(?:Pin-Id|Stream-Identity): )\w+"), r"\1<id>"),
    (re.compile(r'("pinned_(?:client_)?id":)"\w{22}"'), r"\1<pin>"),
    (re.compile(r"(\$JS\.FC\.[^.]+\.[^.]+\.)\w{4,8}\b"), r"\1<fc>"),
    (re.compile(r"(\$JS\.SNAPSHOT\.(?:ACK|RESTORE)\.\S+?\.)\w{8,22}\b"), r"\1<id>"),
]


class Closed(Exception):
    """The server ended the connection."""


class Wire:
    """A connection that takes frames apart; messages wait under their subscription, the rest under "control"."""

    def __init__(self, port: int, connect: Body = "", *, wait: bool = True) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray()
        self.waiting: dict[str, deque[str]] = defaultdict(deque)
        self.is_closed = False
        if connect is None:
            return
        options = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, "lang": "raw"}
        asked = connect or {**options, "version": "1", "protocol": 1, "name": "raw"}
        self.send(b"CONNECT " + as_bytes(asked) + b"\r\nPING\r\n")
        while wait and not self.is_closed and "PONG" not in self.waiting["control"]:
            self.pump(time.monotonic() + WITHIN_S)

    def send(self, data: bytes) -> None:
        """Send bytes, if somebody is still there."""
        try:
            self._socket.sendall(data)
        except OSError:
            self.is_closed = True

    def pump(self, until: float) -> bool:
        """Read once, at most until a time; return whether something came."""
        self._socket.settimeout(max(0.001, until - time.monotonic()))
        try:
            data = self._socket.recv(1 << 18)
        except TimeoutError:
            return False
        except OSError:
            data = b""
        if not data:
            self.is_closed = True
            return False
        self._buffer += data
        while self._take_frame():
            pass
        return True

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def _take_frame(self) -> bool:
        end = self._buffer.find(b"\r\n")
        if end < 0:
            return False
        line = self._buffer[:end].decode("latin-1")
        kind, _, rest = line.partition(" ")
        if kind not in ("MSG", "HMSG"):
            del self._buffer[: end + 2]
            if line == "PING":
                self.send(b"PONG\r\n")
            else:
                self.waiting["control"].append(line)
            return True
        fields = rest.split(" ")
        sizes = [int(each) for each in fields[-2 if kind == "HMSG" else -1 :]]
        if len(self._buffer) < end + 4 + sizes[-1]:
            return False
        body = bytes(self._buffer[end + 2 : end + 2 + sizes[-1]])
        assert self._buffer[end + 2 + sizes[-1] : end + 4 + sizes[-1]] == b"\r\n"
        del self._buffer[: end + 4 + sizes[-1]]
        head = sizes[0] if kind == "HMSG" else 0
        shown = [
            kind,
            fields[0],
            *fields[2 : -len(sizes)],
            repr(body[:head])[1:] if head else "",
            _payload(body[head:]),
        ]
        self.waiting[fields[1]].append(" ".join(filter(None, shown)))
        return True


class Talk:
    """A conversation with one server, written down."""

    def __init__(self, port: int, connect: Body = "", *, wait: bool = True, pace: int = 1) -> None:
        self.port = port
        self.pace = pace
        self.said: list[str] = []
        self.wire = Wire(port, connect, wait=wait)
        self._names: dict[str, str] = {}
        self._others: list[Talk] = []
        self._asked = 0
        self._sids = 1
        self._inbox = (
            f"_INBOX.{uuid.uuid4().hex}"  # no pull that an earlier conversation left behind may find its way here
        )
        if wait and connect is not None:
            self.wire.waiting["control"].clear()
            self.flush()  # another INFO may follow the first PONG
            self.wire.send(f"SUB {self._inbox}.> 1\r\n".encode())

    @property
    def tenth_ns(self) -> int:
        """A tenth of a second, or longer where that was too short."""
        return TENTH_NS * self.pace

    def ask(self, subject: str, body: Body = "", headers: Headers = None, *, answers: int = 1) -> list[str]:
        """Send a request, wait for so many answers and write them down; 0: see that none comes; -n: n or a status."""
        self._asked += 1
        self.note(f"> {subject} {_short(headers)} {_short(body)}")
        self.publish(subject, body, headers, reply=f"{self._inbox}.{self._asked}")
        return self.heard("1", answers)

    def peek(self, subject: str, body: Body = "") -> str:
        """Send a request and return its answer; nothing is written down, however often it is done."""
        said, self.said = self.said, []
        self.publish(subject, body, reply=f"{self._inbox}.peek")
        (answer,) = self.heard("1", 1)
        self.said = said
        return answer

    def wait_for(self, subject: str, is_there: Callable[[dict[str, Any]], bool]) -> None:
        """Ask until the answer is as it has to become; nothing is written down."""
        until = time.monotonic() + WITHIN_S
        while not is_there(answer := json_of(self.peek(subject))):
            assert time.monotonic() < until, f"{subject} still says {answer}"
            self.pause(0.02)

    def publish(self, subject: str, body: Body = "", headers: Headers = None, *, reply: str = "") -> None:
        """Send a message and write nothing down."""
        payload = as_bytes(body)
        start = " ".join(filter(None, [subject, reply]))
        if headers is None:
            self.wire.send(b"PUB %s %d\r\n%s\r\n" % (start.encode(), len(payload), payload))
            return
        block = headers if isinstance(headers, bytes) else _block(headers)
        sizes = (len(block), len(block) + len(payload))
        self.wire.send(b"HPUB %s %d %d\r\n%s%s\r\n" % (start.encode(), *sizes, block, payload))

    def publish_all(self, messages: Iterable[tuple[str, str]]) -> None:
        """Have messages stored, one after the other."""
        for subject, body in messages:
            self.ask(subject, body)

    def listen(self, subject: str, queue: str = "") -> str:
        """Subscribe and return the number to ask `heard` for."""
        self._sids += 1
        self.wire.send(f"SUB {' '.join(filter(None, [subject, queue]))} {self._sids}\r\n".encode())
        self.flush()
        return str(self._sids)

    def heard(self, sid: str, count: int) -> list[str]:
        """Wait for messages of a subscription and write them down; 0: see that none comes; -n: n or a status."""
        queue = self.wire.waiting[sid]
        if not count:
            self._round_trip()  # a server that is slow to read is not one that has nothing to say
        until = time.monotonic() + (WITHIN_S if count else QUIET_S * self.pace)
        while time.monotonic() < until and not self.wire.is_closed:
            if len(queue) >= max(abs(count), 1) or (count < 0 and any(map(_is_status, queue))):
                break
            self.wire.pump(until)
        got: list[str] = []
        while queue and (not count or len(got) < abs(count)) and not (count < 0 and got and _is_status(got[-1])):
            got.append(queue.popleft())
        for message in got:
            self.note(f"< {message}")
        if len(got) < count or (count and not got):
            self.note("< nothing")
        return got

    def raw(self, data: bytes, *, lines: int = 0, shown: str = "") -> None:
        """Send bytes as they are, then PING; write down the lines until PONG, or so many lines without a PING."""
        self.note(f"> {shown or repr(data[:200])[1:]}")
        self.wire.send(data if lines else data + b"PING\r\n")
        control = self.wire.waiting["control"]
        if lines:
            self._pump_until(lambda: len(control) >= lines)
        else:
            pongs = 1 + len(_PING.findall(data))
            self._pump_until(lambda: control.count("PONG") >= pongs)
            self._round_trip()  # an INFO may follow the first PONG, in a packet of its own
        while control:
            self.note(f"< {control.popleft()}")
        for sid in sorted(self.wire.waiting):
            while sid != "control" and self.wire.waiting[sid]:
                self.note(f"< {sid}: {self.wire.waiting[sid].popleft()}")
        if self.wire.is_closed:
            self.note("< closed")

    def another(self, connect: Body = "", *, wait: bool = True) -> "Talk":
        """Return one more connection to the same server; what it says is written down here."""
        other = Talk(self.port, connect, wait=wait, pace=self.pace)
        other.said, other._names = self.said, self._names
        self._others.append(other)
        return other

    def close(self) -> None:
        """End its connections."""
        for talk in (*self._others, self):
            talk.wire.close()

    def flush(self) -> None:
        """Wait until the server has read everything that was sent."""
        self._round_trip()
        self.wire.waiting["control"].clear()

    def _round_trip(self) -> None:
        """Wait until the server has read everything that was sent, and take its PONG away."""
        control = self.wire.waiting["control"]
        before = control.count("PONG")
        self.wire.send(b"PING\r\n")
        self._pump_until(lambda: control.count("PONG") > before)
        if control.count("PONG") > before:
            control.reverse()
            control.remove("PONG")
            control.reverse()

    def _pump_until(self, is_there: Callable[[], bool]) -> None:
        """Read until something has come, or the server has ended the connection."""
        until = time.monotonic() + WITHIN_S
        while not is_there() and time.monotonic() < until and not self.wire.is_closed:
            self.wire.pump(until)

    def call(self, name: str, word: str) -> None:
        """Write a word instead of a name that the server made up."""
        if name:
            self._names[name] = word

    def note(self, line: str) -> None:
        """Write a line down."""
        for name, word in self._names.items():
            line = line.replace(name, word)
        self.said.append(without_ids(line))

    def pause(self, seconds: float) -> None:
        """Let time pass; what comes meanwhile waits."""
        until = time.monotonic() + seconds * self.pace
        while time.monotonic() < until and not self.wire.is_closed:
            self.wire.pump(until)


Script = Callable[[Talk], None]


def differences(script: Script, ports: Iterable[int], connect: Body = "", *, pace: int = 1) -> list[str]:
    """Have the same conversation with two servers at once and return where they part, request by request."""

    def run(port: int) -> list[str]:
        talk = Talk(port, connect, pace=pace)
        try:
            script(talk)
            for sid in sorted(talk.wire.waiting):
                if sid != "control":
                    talk.note(f"left {sid}: {list(talk.wire.waiting[sid])}")
        finally:
            talk.close()
        return talk.said

    with ThreadPoolExecutor(2) as pool:
        theirs, ours = pool.map(run, ports)
    return _parted(_by_request(theirs), _by_request(ours))


def without_ids(line: str) -> str:
    """Put words in the place of times, ids and addresses."""
    for pattern, word in _REPLACED:
        line = pattern.sub(word, line)
    return line


def json_of(message: str) -> dict[str, Any]:
    """Return the JSON in a message that was heard."""
    answer: dict[str, Any] = json.loads(message[message.index("{") :])
    return answer


def as_bytes(body: Body) -> bytes:
    """Return a body as it is sent."""
    match body:
        case bytes():
            return body
        case str():
            return body.encode()
        case None:
            return b""
        case _:
            return json.dumps(body).encode()


def _is_status(message: str) -> bool:
    return re.search(r"'NATS/1\.0 [2-5]\d\d", message) is not None


def _block(headers: Mapping[str, str]) -> bytes:
    return b"NATS/1.0\r\n" + "".join(f"{key}: {value}\r\n" for key, value in headers.items()).encode() + b"\r\n"


def _payload(data: bytes) -> str:
    text = data.decode("latin-1")
    return text if len(text) < 20_000 else f"{text[:50]}… {len(text)} bytes"


def _short(value: object) -> str:
    text = json.dumps(value) if isinstance(value, dict) else str(value or "")
    return text if len(text) < 400 else f"{text[:400]}…"


def _by_request(lines: list[str]) -> list[tuple[str, list[str]]]:
    grouped: list[tuple[str, list[str]]] = [("", [])]
    for line in lines:
        if line.startswith("> "):
            grouped.append((line, []))
        else:
            grouped[-1][1].append(line)
    return grouped


def _parted(theirs: list[tuple[str, list[str]]], ours: list[tuple[str, list[str]]]) -> list[str]:
    assert [request for request, _ in theirs] == [request for request, _ in ours], "the script itself went another way"
    return [
        "\n".join(
            [request, "  nats-server:", *(f"    {each}" for each in real), "  ours:", *(f"    {each}" for each in own)]
        )
        for (request, real), (_, own) in zip(theirs, ours, strict=True)
        if real != own
    ]
