"""Real processes: a leader that is stopped past its lease, between its check and its write, and goes on afterwards."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

import pytest

from strandline.events import Event, Events
from strandline.lease import Lease, LeaseEnded, LeaseLost, LeaseTiming, open_lease_store
from tests.lease.buckets import make_bucket
from tests.servers_nats import NatsServer, fresh_bucket
from tests.servers_seaweed import SeaweedServer, fresh_address
from tests.waiting import PATIENCE_S

NODE = """
import os, signal, sys
from pathlib import Path
from strandline.errors import Conflict
from strandline.lease import Lease, LeaseTiming, open_lease_store
from strandline.objects import LocalObjects

address, key, folder, name = sys.argv[1:5]
data = LocalObjects(Path(folder))
lease = Lease(
    open_lease_store(address, key or None), name,
    timing=LeaseTiming(ttl_s=2, renew_s=0.3, margin_s=0.3, poll_s=0.1),
)

def write(fence, stop=False):
    lease.check(fence)
    if stop:
        with lease._claimant._calls:  # no request is on its way that would keep the folder's lock while it is stopped
            print("stops", fence.epoch, flush=True)
            os.kill(os.getpid(), signal.SIGSTOP)
    found = data.get("position")
    number, epoch = map(int, found.body.split()) if found else (0, 0)
    fence.check_over(epoch)
    body = b"%d %d" % (number + 1, fence.epoch)
    data.put("position", body, if_absent=found is None, if_match=found.info.etag if found else None)
    print("wrote", fence.epoch, flush=True)

while True:
    fence = lease.acquire()
    try:
        write(fence)
        if name == "paused":
            write(fence, stop=True)
        break
    except Conflict as refused:
        print("refused", type(refused).__name__, fence.epoch, flush=True)
        if name == "paused" and type(refused).__name__ == "FenceStale":
            try:
                lease.check(fence)
            except Conflict as lost:
                print("lost", type(lost).__name__, fence.epoch, flush=True)
            break
lease.close()
"""


@contextmanager
def node(address: str, key: str, folder: Path, name: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", NODE, address, key, str(folder), name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGCONT)
            process.kill()


def line_of(process: subprocess.Popen[str], word: str) -> list[str]:
    """Return the next line that begins with a word, passing over others."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(word):
            return line.split()
    raise AssertionError(f"it ended without saying {word!r}")


@pytest.mark.parametrize("kind", ["folder", "seaweed", "nats"])
def test_a_leader_stopped_past_its_lease_writes_nothing_when_it_goes_on(
    kind: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    nats_server: NatsServer,
    seaweed_server: SeaweedServer,
) -> None:
    address, key = (tmp_path / "lease").as_uri(), "lease"
    if kind == "seaweed":
        for name, value in seaweed_server.environ.items():
            monkeypatch.setenv(name, value)
        address = fresh_address()
    if kind == "nats":
        bucket = fresh_bucket()
        make_bucket(nats_server, bucket)
        address, key = f"{nats_server.url}/{bucket}/lease", ""
    with node(address, key, tmp_path / "data", "paused") as paused:
        epoch = int(line_of(paused, "stops")[1])
        os.waitid(os.P_PID, paused.pid, os.WSTOPPED | os.WNOWAIT)
        with node(address, key, tmp_path / "data", "other") as other:
            later = int(line_of(other, "wrote")[1])
            assert later > epoch
            other.wait()
        written = (tmp_path / "data" / "position").read_bytes()
        paused.send_signal(signal.SIGCONT)
        assert line_of(paused, "refused")[1:] == ["FenceStale", str(epoch)]
        assert line_of(paused, "lost")[1:] == ["LeaseLost", str(epoch)]
        paused.wait()
        assert (tmp_path / "data" / "position").read_bytes() == written


@pytest.mark.parametrize("kind", ["seaweed", "nats"])
def test_a_holder_whose_server_stands_still_steps_down_and_leads_again_later(
    kind: str, monkeypatch: pytest.MonkeyPatch, nats_server: NatsServer, seaweed_server: SeaweedServer
) -> None:
    heard: SimpleQueue[Event] = SimpleQueue()
    if kind == "seaweed":
        for name, value in seaweed_server.environ.items():
            monkeypatch.setenv(name, value)
        address, pid = fresh_address(), seaweed_server.pid
        store = open_lease_store(address, "lease")
    else:
        bucket = fresh_bucket()
        make_bucket(nats_server, bucket)
        address, pid = f"{nats_server.url}/{bucket}/lease", nats_server.pid
        store = open_lease_store(address)
    timing = LeaseTiming(ttl_s=1, renew_s=0.2, margin_s=0.1, poll_s=0.1)
    with Lease(store, "a", timing=timing, events=Events(heard.put)) as lease:
        fence = lease.acquire()
        os.kill(pid, signal.SIGSTOP)
        try:
            while not isinstance(heard.get(timeout=PATIENCE_S), LeaseEnded):
                pass
            with pytest.raises(LeaseLost):
                lease.check(fence)
        finally:
            os.kill(pid, signal.SIGCONT)
        assert lease.acquire().epoch > fence.epoch
