"""An hour of ordinary work on one server: its memory, its files and its answers stay as they were after ten minutes.

A bucket is overwritten for ever, a queue is worked off, messages expire, and streams, consumers and connections come
and go. `STRANDLINE_SOAK_MINUTES` makes it shorter, to try it out.
"""

import json
import os
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from tests.broker.clients.servers import running
from tests.broker.socket_client import SocketClient, header_block, pub_frame
from tests.servers_nats import NatsServer
from tests.waiting import PATIENCE_S

MINUTES = float(os.environ.get("STRANDLINE_SOAK_MINUTES", "60"))
SAMPLES = 120
KEYS = 1000
PAUSE_S = 0.05
FILES_MAX = 160 << 20
"""What is live at any time is less than 2 MiB; a hundred times as much goes through each minute."""


class Sample(NamedTuple):
    """The server at one time."""

    memory: int
    files: int
    latency_s: float
    threads: int
    open_files: int


Work = Callable[[SocketClient, int], None]


def overwrite(client: SocketClient, turn: int) -> None:
    """Put two hundred keys of a bucket."""
    numbers = [(turn * 200 + number) % KEYS for number in range(200)]
    frames = [pub_frame(f"$KV.soak.k.{number}", b"%d:" % turn + b"v" * 200, reply=client.inbox) for number in numbers]
    client.send(b"".join(frames))
    sequences = [client.next().json()["seq"] for _ in frames]
    assert sequences == list(range(int(sequences[0]), int(sequences[0]) + 200))  # type: ignore[call-overload]


def queue(client: SocketClient, turn: int) -> None:
    """Publish fifty jobs, take them, and acknowledge them."""
    frames = [pub_frame("soak.jobs", b"%d" % number, reply=client.inbox) for number in range(50)]
    client.send(b"".join(frames))
    assert all("seq" in client.next().json() for _ in frames)
    pull = json.dumps({"batch": 50, "expires": 5 * 10**9}).encode()
    client.publish("$JS.API.CONSUMER.MSG.NEXT.JOBS.w", pull, reply=client.inbox)
    taken = [client.next() for _ in range(50)]
    assert not any(message.status for message in taken), taken[-1]
    client.send(
        b"".join(
            pub_frame(message.reply, b"-NAK" if turn % 7 == 0 and at == 3 else b"+ACK")
            for at, message in enumerate(taken)
        )
    )
    if turn % 7 == 0:
        client.publish("$JS.API.CONSUMER.MSG.NEXT.JOBS.w", pull.replace(b"50", b"1", 1), reply=client.inbox)
        client.publish(client.next().reply, b"+ACK")


def expire(client: SocketClient, turn: int) -> None:
    """Publish with identifiers what is gone a few seconds later; what is published twice counts once."""
    headers = [header_block(Msg_Id=f"{turn}-{number // 2}") for number in range(40)]
    client.send(b"".join(pub_frame("soak.aged", b"x" * 300, reply=client.inbox, headers=each) for each in headers))
    answers = [client.next().json() for _ in headers]
    assert sum("duplicate" in answer for answer in answers) == 20, answers[:3]


def come_and_go(client: SocketClient, turn: int) -> None:
    """Make streams and consumers, use them, and remove them or leave them to go by themselves."""
    name = f"T{turn % 5}"
    client.api(f"STREAM.CREATE.{name}", {"name": name, "storage": "memory" if turn % 2 else "file"})
    config = {"ack_policy": "explicit", "inactive_threshold": 10**9, "durable_name": f"d{turn % 3}"}
    client.api(f"CONSUMER.DURABLE.CREATE.{name}.d{turn % 3}", {"stream_name": name, "config": config})
    assert client.request(name, b"hello").json()["seq"] == 1
    client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{name}.d{turn % 3}", b"1", reply=client.inbox)
    client.request(client.next().reply, b"+ACK")
    client.api(f"STREAM.DELETE.{name}")
    ephemeral = {"ack_policy": "none", "inactive_threshold": 10**9, "mem_storage": True}
    client.api("CONSUMER.CREATE.KV_soak", {"stream_name": "KV_soak", "config": ephemeral})


def watch(client: SocketClient, turn: int) -> None:
    """See all keys of the bucket as a new watcher does."""
    config = {
        "deliver_subject": f"{client.inbox}.w{turn}",
        "deliver_policy": "last_per_subject",
        "filter_subject": "$KV.soak.>",
        "ack_policy": "none",
        "mem_storage": True,
    }
    client.subscribe(f"{client.inbox}.w{turn}", "w")
    made = client.api("CONSUMER.CREATE.KV_soak", {"stream_name": "KV_soak", "config": config})
    keys = {
        client.next().subject for _ in range(int(made["num_pending"]) if isinstance(made["num_pending"], int) else 0)
    }
    assert len(keys) > KEYS * 0.9 or turn < 10
    client.send(b"UNSUB w\r\n")
    client.api(f"CONSUMER.DELETE.KV_soak.{made['name']}")
    client.flush()
    client.messages.clear()


WORKS: Sequence[Work] = (overwrite, queue, expire, come_and_go, watch)


def prepare(client: SocketClient) -> None:
    """Make what stays."""
    bucket = {"max_msgs_per_subject": 1, "allow_rollup_hdrs": True, "allow_direct": True, "discard": "new"}
    client.api("STREAM.CREATE.KV_soak", {"name": "KV_soak", "subjects": ["$KV.soak.>"], **bucket})
    client.api("STREAM.CREATE.JOBS", {"name": "JOBS", "subjects": ["soak.jobs"], "retention": "workqueue"})
    worker = {"durable_name": "w", "ack_policy": "explicit"}
    client.api("CONSUMER.DURABLE.CREATE.JOBS.w", {"stream_name": "JOBS", "config": worker})
    aged = {"max_age": 3 * 10**9, "duplicate_window": 2 * 10**9}
    client.api("STREAM.CREATE.AGED", {"name": "AGED", "subjects": ["soak.aged"], **aged})


def work(server: NatsServer, job: Work, stop: threading.Event, failures: list[BaseException]) -> None:
    """Do one thing again and again, over a new connection now and then."""
    turn = 0
    try:
        while not stop.is_set():
            with SocketClient(server.port) as client:
                client.subscribe(client.inbox, "1")
                for _ in range(50):
                    turn += 1
                    job(client, turn)
                    if stop.wait(PAUSE_S):
                        break
    except BaseException as error:  # noqa: BLE001 - told to who waits for it
        error.add_note(f"{job.__name__}, turn {turn}")
        failures.append(error)
        stop.set()


def sample(server: NatsServer, client: SocketClient) -> Sample:
    """Look at the server, and ask it some things."""
    process = psutil.Process(server.pid)
    times = []
    for _ in range(20):
        began = time.perf_counter()
        client.api("STREAM.INFO.JOBS")
        times.append(time.perf_counter() - began)
    return Sample(
        process.memory_info().rss,
        sum(path.stat().st_size for path in Path(server.folder / "data").rglob("*") if path.is_file()),
        statistics.median(times),
        process.num_threads(),
        process.num_fds(),
    )


def check(samples: Sequence[Sample]) -> None:
    """Compare the last third with what was there once everything had begun."""
    early, late = samples[len(samples) // 6 : len(samples) // 3], samples[-len(samples) // 3 :]
    before = Sample(*(statistics.median(column) for column in zip(*early, strict=True)))
    after = Sample(*(statistics.median(column) for column in zip(*late, strict=True)))
    told = f"before {before}, after {after}"
    assert after.memory < before.memory * 1.1 + (16 << 20), told
    assert max(each.files for each in samples) < FILES_MAX, told
    assert after.latency_s < before.latency_s * 2 + 0.01, told
    assert after.threads <= before.threads + 2, told
    assert after.open_files <= before.open_files + 10, told


@pytest.mark.campaign("soak")
@pytest.mark.timeout(int(MINUTES * 60) + 300)
def test_an_hour_of_work_leaves_memory_files_and_latency_as_they_were() -> None:
    stop = threading.Event()
    failures: list[BaseException] = []
    samples: list[Sample] = []
    with running("strandline") as server, SocketClient(server.port) as client:
        prepare(client)
        threads = [threading.Thread(target=work, args=(server, job, stop, failures), daemon=True) for job in WORKS]
        for thread in threads:
            thread.start()
        while len(samples) < SAMPLES and not stop.wait(MINUTES * 60 / SAMPLES):
            samples.append(sample(server, client))
        stop.set()
        for thread in threads:
            thread.join(PATIENCE_S)
    assert not failures, failures
    check(samples)
