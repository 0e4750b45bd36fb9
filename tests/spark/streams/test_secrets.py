"""Credentials leave no trace: not in plans, event logs, checkpoints, progress, errors, or Spark's log."""

import subprocess
import sys
from pathlib import Path

from strandline.spark.streams import Target
from tests.identities_nats import USER, USER_INFO
from tests.servers_nats import running_nats
from tests.servers_spark import ROOT
from tests.spark.streams.helpers import ServerLog
from tests.waiting import PATIENCE_S


def test_no_credential_is_shown_by_spark_or_by_us(tmp_path: Path) -> None:
    password = USER_INFO.partition(":")[2].encode()
    with running_nats(USER) as server, ServerLog(server.url_with(USER_INFO), Target("stream", "orders")) as world:
        world.fill(100)
        command = [sys.executable, "-m", "tests.spark.streams.child", "secrets", world.url, "orders", str(tmp_path)]
        child = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, timeout=5 * PATIENCE_S)
        assert child.returncode == 0, child.stderr.decode()[-3000:]
        assert world.state().last == 600, (
            "every door was used: 100 were written again, then all of them streamed, twice"
        )
    said = child.stdout + child.stderr
    for word in (b"BatchScan", b"MicroBatchScan", b"there is no stream nobody", b"beyond the end"):
        assert word in said, "what would show it was printed"
    assert password not in said
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert any(b"AppendData" in file.read_bytes() for file in files if "events" in str(file)), "the write was logged"
    shown = [str(file) for file in files if password in file.read_bytes()]
    assert not shown
