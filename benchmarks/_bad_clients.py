"""A catalogue of clients that misbehave: each is a function that does one thing wrong, for as long as it is let.

Invariants: a function takes a connected socket's address and returns when the server has ended it; whoever runs one
ends its process. `python -m benchmarks._bad_clients KIND PORT` runs one. Nothing here needs more than a login.
"""

import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true,"protocol":1}\r\n'
BLOCK = 1 << 16
Misbehaviour = Callable[[int], None]


def _connected(port: int, *, reads: bool = True, connect: bytes = CONNECT) -> socket.socket:
    """Return a socket that has said who it is; with `reads`, a thread throws away what comes."""
    found = socket.create_connection(("127.0.0.1", port))
    found.recv(BLOCK)
    found.sendall(connect)
    if reads:
        threading.Thread(target=_drain, args=(found,), daemon=True).start()
    return found


def _drain(found: socket.socket) -> None:
    with suppress(OSError):
        while found.recv(1 << 20):
            pass


def _flood(found: socket.socket, data: bytes) -> None:
    block = data * max(1, BLOCK // len(data))
    while True:
        found.sendall(block)


def _pub(subject: str, payload: bytes, reply: str = "") -> bytes:
    return b"PUB %b %d\r\n%b\r\n" % (f"{subject} {reply}".strip().encode(), len(payload), payload)


def _ask(subject: str, body: object) -> bytes:
    return _pub(f"$JS.API.{subject}", json.dumps(body).encode(), "nobody.listens")


def _stream(name: str, **config: object) -> bytes:
    return _ask(f"STREAM.CREATE.{name}", {"name": name, "storage": "memory", **config})


def _consumer(stream: str, name: str, **config: object) -> bytes:
    body = {"stream_name": stream, "config": {"name": name, "ack_policy": "explicit", **config}}
    return _ask(f"CONSUMER.CREATE.{stream}.{name}", body)


def ping_flood(port: int) -> None:
    """Ping without end, and read."""
    _flood(_connected(port), b"PING\r\n")


def ping_flood_unread(port: int) -> None:
    """Ping without end, and never read an answer."""
    _flood(_connected(port, reads=False), b"PING\r\n")


def pong_flood(port: int) -> None:
    """Answer pings that nobody sent."""
    _flood(_connected(port), b"PONG\r\n")


def empty_lines(port: int) -> None:
    """Send operations in lower case with odd blanks, which are slow to read."""
    _flood(_connected(port), b"ping \t \r\npub  a\t 0\r\n\r\n")


def connect_flood(port: int) -> None:
    """Say who one is again and again."""
    _flood(_connected(port), CONNECT)


def subscribe_flood(port: int) -> None:
    """Subscribe and unsubscribe without end."""
    _flood(_connected(port), b"".join(b"SUB s.%d.* %d\r\nUNSUB %d\r\n" % (n, n, n) for n in range(1000)))


def many_subscriptions(port: int) -> None:
    """Subscribe to more and more subjects."""
    found = _connected(port)
    for number in range(10**9):
        found.sendall(b"".join(b"SUB m.%d.%d %d\r\n" % (number, n, number * 1000 + n) for n in range(1000)))


def deep_subjects(port: int) -> None:
    """Subscribe and publish with hundreds of tokens, of which many are wildcards."""
    pattern = b".".join([b"*", b"a"] * 200)
    _flood(_connected(port), b"SUB %b 1\r\nPUB %b 0\r\n\r\nUNSUB 1\r\n" % (pattern, b".".join([b"a"] * 400)))


def overlapping_wildcards(port: int) -> None:
    """Have 8,192 subscriptions to one subject, and publish to it."""
    found = _connected(port)
    tokens = ["*.*.*", "a.>", "*.>", ">", "a.*.*", "*.b.*", "*.*.c", "a.b.*"]
    found.sendall(b"".join(b"SUB %b %d\r\n" % (tokens[n % 8].encode(), n) for n in range(8192)))
    while True:
        found.sendall(_pub("a.b.c", b"x" * 16))


def overlapping_wildcards_unread(port: int) -> None:
    """Have 8,192 subscriptions to one subject, publish to it, and read nothing."""
    while True:
        found = _connected(port, reads=False)
        found.sendall(b"".join(b"SUB %b %d\r\n" % ((b"*.*.*", b"a.>")[n % 2], n) for n in range(8192)))
        with suppress(OSError):
            while True:
                found.sendall(_pub("a.b.c", b"x" * 16))


def publish_flood(port: int) -> None:
    """Publish tiny messages as fast as the server reads them."""
    _flood(_connected(port), b"".join(_pub(f"flood.{n}", b"x") for n in range(1000)))


def publish_to_itself(port: int) -> None:
    """Publish to a subscription of one's own, and read nothing."""
    while True:
        found = _connected(port, reads=False)
        with suppress(OSError):
            found.sendall(b"SUB own 1\r\n")
            _flood(found, _pub("own", b"x" * 1000))


def requests_nobody_answers(port: int) -> None:
    """Ask where nobody listens, which the server has to say each time."""
    found = _connected(port)
    found.sendall(b"SUB inbox.* 1\r\n")
    _flood(found, b"".join(_pub(f"nobody.{n}", b"", f"inbox.{n}") for n in range(1000)))


def headers_flood(port: int) -> None:
    """Publish messages with hundreds of headers to a stream."""
    found = _connected(port)
    found.sendall(_stream("HEADED", subjects=["headed"], max_msgs=1000))
    block = b"NATS/1.0\r\n" + b"".join(b"Nats-X-%d: y\r\n" % n for n in range(300)) + b"\r\n"
    _flood(found, b"HPUB headed %d %d\r\n%b\r\n" % (len(block), len(block), block))


def large_messages(port: int) -> None:
    """Publish the largest messages to a stream that keeps few."""
    found = _connected(port)
    found.sendall(_stream("LARGE", subjects=["large"], max_msgs=4))
    _flood(found, _pub("large", b"x" * 1_000_000))


def stored_flood(port: int) -> None:
    """Publish tiny messages to a stream as fast as the server reads them."""
    found = _connected(port)
    found.sendall(_stream("FLOOD", subjects=["stored.>"], max_msgs=10_000))
    _flood(found, b"".join(_pub(f"stored.{n}", b"x", "nobody.listens") for n in range(1000)))


def streams_of_many_subjects(port: int) -> None:
    """Make streams with a thousand subjects each, and remove them."""
    found = _connected(port)
    remove = _pub("$JS.API.STREAM.DELETE.MANY", b"", "nobody.listens")
    _flood(found, _stream("MANY", subjects=[f"many.{n}" for n in range(1000)]) + remove)


def stream_of_forty_thousand_subjects(port: int) -> None:
    """Make a stream with as many subjects as a message holds, then another one."""
    found = _connected(port)
    for number in range(10**9):
        found.sendall(_stream(f"HUGE{number}", subjects=[f"h{number}.{n}" for n in range(40_000)]))
        time.sleep(1.0)


def consumers_of_many_filters(port: int) -> None:
    """Make a consumer with a thousand filters, again and again."""
    found = _connected(port)
    found.sendall(_stream("FILTERED", subjects=["filtered.>"]))
    filters = [f"filtered.{n}" for n in range(1000)]
    _flood(found, _consumer("FILTERED", "many", filter_subjects=filters))


def requests_of_deep_json(port: int) -> None:
    """Ask with JSON that is nested a hundred thousand times."""
    _flood(_connected(port), _pub("$JS.API.STREAM.CREATE.DEEP", b"[" * 100_000, "nobody.listens"))


def requests_for_lists(port: int) -> None:
    """Ask for all streams without end, of which there are a hundred."""
    found = _connected(port)
    found.sendall(b"".join(_stream(f"LIST{n}", subjects=[f"list.{n}"]) for n in range(100)))
    _flood(found, _ask("STREAM.LIST", {"offset": 0}))


def pulls_without_end(port: int) -> None:
    """Ask for more and more messages of a stream that has none."""
    found = _connected(port)
    found.sendall(_stream("PULLED", subjects=["pulled"]) + _consumer("PULLED", "c"))
    found.sendall(b"SUB inbox.> 1\r\n")
    pull = b'{"batch":1,"expires":1000000}'
    pulls = b"".join(_pub("$JS.API.CONSUMER.MSG.NEXT.PULLED.c", pull, f"inbox.{n}") for n in range(500))
    _flood(found, pulls)


def acknowledgements_of_nothing(port: int) -> None:
    """Acknowledge what was never delivered."""
    found = _connected(port)
    found.sendall(_stream("ACKED", subjects=["acked"]) + _consumer("ACKED", "c"))
    _flood(found, b"".join(_pub(f"$JS.ACK.ACKED.c.1.{n}.{n}.1.0", b"+ACK") for n in range(1, 1000)))


def consumer_unread(port: int) -> None:
    """Have a consumer push a large stream to one who does not read, again and again."""
    while True:
        found = _connected(port, reads=False)
        with suppress(OSError):
            found.sendall(_stream("PUSHED", subjects=["pushed"], max_msgs=20_000) + _pub("pushed", b"x" * 500) * 20_000)
            found.sendall(b"SUB deliver 1\r\n")
            while True:
                found.sendall(_consumer("PUSHED", "p", deliver_subject="deliver", ack_policy="none"))
                found.sendall(_pub("$JS.API.CONSUMER.DELETE.PUSHED.p", b"", "nobody.listens"))
                time.sleep(0.05)


def connections_that_say_nothing(port: int) -> None:
    """Open connections and leave them, hundreds at a time."""
    while True:
        found = []
        with suppress(OSError):
            found = [socket.create_connection(("127.0.0.1", port)) for _ in range(200)]
        for each in found:
            each.close()


def connections_that_log_in(port: int) -> None:
    """Connect, log in and leave, as fast as that goes."""
    while True:
        with suppress(OSError):
            _connected(port, reads=False).close()


def one_byte_at_a_time(port: int) -> None:
    """Send each byte by itself."""
    found = _connected(port)
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in _endless(_pub("slow", b"x" * 100)):
        found.sendall(byte)


def _endless(data: bytes) -> Iterator[bytes]:
    while True:
        for number in range(len(data)):
            yield data[number : number + 1]


def unfinished_message(port: int) -> None:
    """Begin messages of the largest size, and end the connection before they are whole."""
    while True:
        found = _connected(port)
        with suppress(OSError):
            found.sendall(b"PUB large 1000000\r\n" + b"x" * 900_000)
        found.close()


def garbage(port: int) -> None:
    """Send what is no operation, and come back."""
    while True:
        found = _connected(port, reads=False)
        with suppress(OSError):
            found.sendall(bytes(range(256)) * 256)
        found.close()


KINDS: dict[str, Misbehaviour] = {
    each.__name__: each
    for each in (
        ping_flood,
        ping_flood_unread,
        pong_flood,
        empty_lines,
        connect_flood,
        subscribe_flood,
        many_subscriptions,
        deep_subjects,
        overlapping_wildcards,
        overlapping_wildcards_unread,
        publish_flood,
        publish_to_itself,
        requests_nobody_answers,
        headers_flood,
        large_messages,
        stored_flood,
        streams_of_many_subjects,
        stream_of_forty_thousand_subjects,
        consumers_of_many_filters,
        requests_of_deep_json,
        requests_for_lists,
        pulls_without_end,
        acknowledgements_of_nothing,
        consumer_unread,
        connections_that_say_nothing,
        connections_that_log_in,
        one_byte_at_a_time,
        unfinished_message,
        garbage,
    )
}


def main() -> None:
    """Misbehave until the server has had enough, then again."""
    kind, port = KINDS[sys.argv[1]], int(sys.argv[2])
    while True:
        with suppress(OSError):
            kind(port)
        time.sleep(0.01)


if __name__ == "__main__":
    main()
