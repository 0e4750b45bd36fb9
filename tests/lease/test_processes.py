"""Real processes: a leader that is stopped past its lease, between its check and its write, and goes on afterwards."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.lease.test_stores import make_bucket
from tests.servers_nats import NatsServer, fresh_bucket
from tests.servers_seaweed import SeaweedServer, fresh_address

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
