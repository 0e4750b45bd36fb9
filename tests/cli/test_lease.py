"""The commands of `strandline lease`, over a folder and a bucket of a real nats-server."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from strandline.lease import Claimant, LeaseTiming, open_lease_store
from tests.cli.runs import run_command
from tests.lease.buckets import make_bucket
from tests.servers_nats import NatsServer

STRANDLINE = (sys.executable, "-c", "from strandline.cli.app import main; main()")
TIMING = LeaseTiming(ttl_s=600)


def claimed(address: str, key: str | None, holder: str = "node-a") -> Claimant:
    candidate = Claimant(open_lease_store(address, key), holder, address=f"http://{holder}", timing=TIMING)
    assert candidate.claim() is not None
    return candidate


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """Give a test the address of a folder."""
    return tmp_path.as_uri()


def test_show_says_who_holds_it(folder: str) -> None:
    ran = run_command("lease", "show", folder, "lease", "--json")
    assert (ran.code, json.loads(ran.out)["state"]) == (0, "missing")
    candidate = claimed(folder, "lease")
    shown = json.loads(run_command("lease", "show", folder, "lease", "--json").out)
    assert (shown["state"], shown["epoch"], shown["holder"], shown["holder_address"], shown["ttl_s"]) == (
        "held",
        1,
        "node-a",
        "http://node-a",
        600,
    )
    assert "node-a" in run_command("lease", "show", folder, "lease").out
    candidate.release()
    shown = json.loads(run_command("lease", "show", folder, "lease", "--json").out)
    assert (shown["state"], shown["epoch"]) == ("released", 1)


def test_release_takes_it_from_its_holder_and_keeps_the_epoch(folder: str) -> None:
    candidate = claimed(folder, "lease")
    ran = run_command("lease", "release", folder, "lease", "--epoch", "1")
    assert ran.code == 1
    assert "--yes" in ran.err
    assert candidate.renew() is not None
    ran = run_command("lease", "release", folder, "lease", "--epoch", "2", "--yes")
    assert ran.code == 1
    assert "the record has epoch 1" in ran.err
    assert candidate.renew() is not None
    ran = run_command("lease", "release", folder, "lease", "--epoch", "1", "--yes", "--json")
    assert ran.code == 0, ran.err
    assert (json.loads(ran.out)["epoch"], json.loads(ran.out)["state"]) == (1, "released")
    assert candidate.renew() is None


def test_a_bucket_is_named_by_one_address_or_with_a_key(nats_server: NatsServer, nats_bucket: str) -> None:
    make_bucket(nats_server, nats_bucket)
    candidate = claimed(f"{nats_server.url}/{nats_bucket}", "orders.lease")
    for arguments in (
        [f"{nats_server.url}/{nats_bucket}/orders.lease"],
        [f"{nats_server.url}/{nats_bucket}", "orders.lease"],
    ):
        ran = run_command("lease", "show", *arguments, "--json")
        assert json.loads(ran.out)["holder"] == "node-a"
    candidate.store.close()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["show", "ftp://host"], "needs a key"),
        (["show", "ftp://host", "lease"], "is not an object store"),
        (["show", "nats://127.0.0.1:1/bucket"], "does not name a bucket and a key"),
        (["release", "file:///tmp", "lease", "--epoch", "1"], "would stop leading"),
    ],
)
def test_a_wrong_command_line_gets_a_hint(arguments: list[str], said: str) -> None:
    ran = run_command("lease", *arguments)
    assert ran.code == 1
    assert said in ran.err
    assert "hint: " in ran.err


def test_a_damaged_record_is_said_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "lease").write_bytes(b"{}")
    ran = run_command("lease", "show", tmp_path.as_uri(), "lease")
    assert ran.code == 3
    assert "its record has no" in ran.err
    ran = run_command("lease", "release", tmp_path.as_uri(), "lease", "--epoch", "1", "--yes")
    assert ran.code == 3
    assert (tmp_path / "lease").read_bytes() == b"{}"


def test_watch_prints_changes_and_no_renewals(folder: str) -> None:
    command = [*STRANDLINE, "lease", "watch", folder, "lease", "--json", "--interval", "0.05"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watch:
        assert watch.stdout is not None
        states = [json.loads(watch.stdout.readline())["state"]]
        first = claimed(folder, "lease", "node-a")
        told = json.loads(watch.stdout.readline())
        states.append((told["state"], told["epoch"], told["holder"]))
        first.renew()
        first.release()
        states.append(json.loads(watch.stdout.readline())["state"])
        claimed(folder, "lease", "node-b")
        told = json.loads(watch.stdout.readline())
        states.append((told["state"], told["epoch"], told["holder"]))
        watch.send_signal(signal.SIGINT)
        watch.communicate()
        assert watch.returncode == 130
    assert states == ["missing", ("held", 1, "node-a"), "released", ("held", 2, "node-b")]
