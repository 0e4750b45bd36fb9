"""What `strandline serve` imports: no more than it needs, and nothing once it is ready.

A module that is imported on the loop holds everybody up, pandas for more than a second.
"""

import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.socket_client import SocketClient, pub_frame
from tests.ports import free_ports

WITHIN_S = 120.0
READY = "Server is ready"
UNNEEDED = {
    "click",
    "crc32c",
    "email",
    "grpc",
    "hyperscan",
    "importlib.metadata",
    "multiprocessing",
    "nacl",
    "nats",
    "numpy.ma",
    "numpy.random",
    "pandas",
    "psycopg",
    "pyarrow.compute",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "pyspark",
    "rich",
    "strandline.fold",
    "strandline.kv",
    "strandline.pipeline",
    "strandline.queue",
    "strandline.detect",
    "strandline.spark",
    "typer",
}
"""What other commands need, or servers with other settings."""

PAGES = ("varz", "connz?subs=1&auth=1", "jsz?streams=1&consumers=1&config=1", "healthz", "subsz?subs=1", "accountz")


class Watched:
    """A server whose imports are written down as they happen, before and after it is ready."""

    def __init__(self, folder: Path, settings: str = "", *flags: str) -> None:
        (self.port,) = free_ports(1)
        self._said = folder / "said"
        config = folder / "server.conf"
        config.write_text(f'listen: "127.0.0.1:{self.port}"\njetstream {{ store_dir: "{folder}" }}\n{settings}\n')
        program = "import sys; sys.argv[0] = 'strandline'; from strandline.cli.entry import main; main()"
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(
                [sys.executable, "-X", "importtime", "-c", program, "serve", "-c", str(config), *flags],
                stdout=said,
                stderr=said,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        give_up = time.monotonic() + WITHIN_S
        while READY not in self._said.read_text(errors="replace"):
            assert self._process.poll() is None, self._said.read_text(errors="replace")[-2000:]
            assert time.monotonic() < give_up, "the server never became ready"
            time.sleep(0.02)

    def stop(self) -> tuple[set[str], set[str]]:
        """End the server; return the modules that it imported before it was ready, and after."""
        self._process.terminate()
        self._process.wait(WITHIN_S)
        before, _, after = self._said.read_text(errors="replace").partition(READY)
        after = after.partition("Trapped")[0]
        return _imported(before), _imported(after)


def _imported(lines: str) -> set[str]:
    return {line.rpartition("|")[2].strip() for line in lines.splitlines() if line.startswith("import time:")}


@pytest.fixture
def folder() -> Iterator[Path]:
    """Give a test a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="strandline-") as name:
        yield Path(name)


def _publish_all_sorts(client: SocketClient) -> None:
    """Publish runs of messages of one shape, of many, with headers and replies, to a stream and beside it."""
    block = b"NATS/1.0\r\nA: b\r\n\r\n"
    client.api("STREAM.CREATE.A", {"name": "A", "subjects": ["a.>"], "max_msgs_per_subject": 5, "allow_direct": True})
    client.send(b"".join(pub_frame(f"a.{number}", b"x" * 50) for number in range(2000)))
    client.send(
        b"".join(pub_frame("a." + "z" * (n % 7 + 1), b"x" * (n % 90), headers=block * (n % 2)) for n in range(2000))
    )
    client.send(pub_frame("other", b"x" * 50) * 2000)
    client.flush()
    assert client.request("a.acked", b"x").json()["seq"]


def _consume(client: SocketClient) -> None:
    config = {"durable_name": "c", "ack_policy": "explicit", "filter_subjects": ["a.*", "a.b.>"]}
    client.api("CONSUMER.CREATE.A.c", {"stream_name": "A", "config": config})
    client.subscribe(client.inbox, "1")
    client.publish("$JS.API.CONSUMER.MSG.NEXT.A.c", b"500", reply=client.inbox)
    replies = [client.next(WITHIN_S).reply for _ in range(500)]
    client.send(b"".join(pub_frame(reply, b"+ACK") for reply in replies))
    pushed = {
        "deliver_subject": "pushed",
        "ack_policy": "none",
        "deliver_policy": "last_per_subject",
        "filter_subject": ">",
    }
    client.subscribe("pushed", "2")
    client.api("CONSUMER.CREATE.A", {"stream_name": "A", "config": {**pushed, "filter_subject": ">"}})
    assert client.next(WITHIN_S).subject.startswith("a.")


def _use_a_bucket(client: SocketClient) -> None:
    config = {"name": "KV_b", "subjects": ["$KV.b.>"], "max_msgs_per_subject": 3, "allow_rollup_hdrs": True}
    client.api("STREAM.CREATE.KV_b", {**config, "allow_direct": True, "deny_delete": True})
    for number in range(20):
        assert "seq" in client.request(f"$KV.b.k{number % 5}", b"v").json()
    purge = b"NATS/1.0\r\nKV-Operation: PURGE\r\nNats-Rollup: sub\r\n\r\n"
    assert "seq" in client.request("$KV.b.k1", b"", headers=purge).json()
    assert client.request("$JS.API.DIRECT.GET.KV_b.$KV.b.k2").payload == b"v"


def _administer(client: SocketClient) -> None:
    client.api("STREAM.INFO.A", {"subjects_filter": ">", "deleted_details": True})
    client.api("STREAM.MSG.GET.A", {"last_by_subj": "a.1"})
    client.api("STREAM.PURGE.A", {"filter": "a.1"})
    client.api("STREAM.CREATE.COPY", {"name": "COPY", "sources": [{"name": "A"}]})
    client.api("STREAM.LIST")
    client.api("CONSUMER.LIST.A")
    client.subscribe("snapshot", "3")
    client.api("STREAM.SNAPSHOT.A", {"deliver_subject": "snapshot"})
    assert client.next(WITHIN_S) is not None


def test_nothing_is_imported_once_a_server_is_ready(folder: Path) -> None:
    http_port, metrics_port = free_ports(2)
    server = Watched(folder, f'http: "127.0.0.1:{http_port}"', f"--metrics_port={metrics_port}")
    try:
        with SocketClient(server.port) as client:
            _publish_all_sorts(client)
            _consume(client)
            _use_a_bucket(client)
            _administer(client)
        pages = [f"{http_port}/{page}" for page in PAGES] + [f"{metrics_port}/{page}" for page in ("metrics", "readyz")]
        for page in pages:
            with urllib.request.urlopen(f"http://127.0.0.1:{page}") as answer:
                assert answer.read()
    finally:
        before, after = server.stop()
    assert "strandline.broker.server" in before
    assert {name for name in after if not name.startswith("encodings.")} == set()


def test_a_server_imports_nothing_that_only_others_need(folder: Path) -> None:
    server = Watched(folder)
    before, _ = server.stop()
    assert {name for name in before if name in UNNEEDED or name.partition(".")[0] in UNNEEDED} == set()


def test_a_server_with_nkeys_has_imported_what_checks_signatures(folder: Path) -> None:
    nkey = "UCNGL4W5QX66CFX6A6DCBVDH5VOHMI7B2UZZU7TXAUQQSI2JPHULCKBR"
    server = Watched(folder, f"authorization {{ users: [ {{ nkey: {nkey} }} ] }}")
    with SocketClient(server.port, {"nkey": nkey, "sig": "AAAA"}, greet=False) as client:
        client.send(b'CONNECT {"nkey":"%b","sig":"AAAA"}\r\nPING\r\n' % nkey.encode())
        assert client.wait_for_end() == ["Authorization Violation"]
    before, after = server.stop()
    assert "nacl.signing" in before
    assert {name for name in after if not name.startswith("encodings.")} == set()
