"""Strandline and litestream as their users run them: a process beside the application, and a command that restores."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks._s3_trace import S3Trace
from tests.servers_seaweed import ACCESS_KEY, BUCKET, SECRET_KEY

OURS, QUICK_OURS = "strandline", "strandline, without a pace"
LITESTREAM, QUICK_LITESTREAM = "litestream", "litestream, every 10 ms"
_BIN = Path(sys.executable).parent


class Replicated(NamedTuple):
    """A database, and the place in the store that its replica has."""

    database: Path
    prefix: str
    trace: S3Trace

    @property
    def address(self) -> str:
        """The address of the replica, for `strandline`."""
        return f"s3://{BUCKET}/{self.prefix}"

    def environ(self) -> dict[str, str]:
        """Return the environment of both commands; litestream fails where a bundle of certificates is named."""
        kept = {name: value for name, value in os.environ.items() if name != "AWS_CA_BUNDLE"}
        return kept | {
            "AWS_ENDPOINT_URL": self.trace.endpoint,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": "us-east-1",
        }

    def litestream_config(self, *, quick: bool = False) -> Path:
        """Write litestream's configuration: its defaults, or the quickest that it takes."""
        path = self.database.with_suffix(".yml")
        quickest = ("    monitor-interval: 10ms\n", "      sync-interval: 10ms\n") if quick else ("", "")
        path.write_text(
            f"dbs:\n  - path: {self.database.resolve()}\n{quickest[0]}    replica:\n      type: s3\n"
            f"      bucket: {BUCKET}\n      path: {self.prefix}\n      endpoint: {self.trace.endpoint}\n"
            f"      region: us-east-1\n      force-path-style: true\n{quickest[1]}"
            f"      access-key-id: {ACCESS_KEY}\n      secret-access-key: {SECRET_KEY}\n"
        )
        return path


@contextmanager
def replicating(side: str, replicated: Replicated) -> Iterator[int]:
    """Replicate a database for the time of a block, from its first file in the store on; yield the process id."""
    if side in (OURS, QUICK_OURS):
        command = [str(_BIN / "strandline"), "replica", "run", str(replicated.database), replicated.address]
        command += ["--upload-every", "0"] if side == QUICK_OURS else []
    else:
        config = replicated.litestream_config(quick=side == QUICK_LITESTREAM)
        command = [litestream(), "replicate", "-config", str(config)]
    guard = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
    with replicated.database.with_suffix(".log").open("ab") as log:
        process = subprocess.Popen([*guard, *command], stdout=log, stderr=log, env=replicated.environ())
    try:
        replicated.trace.wait_for_transaction(0)
        replicated.trace.wait_until_quiet()
        yield process.pid
        if process.poll() is not None:
            raise AssertionError(f"{side} has ended: " + replicated.database.with_suffix(".log").read_text()[-2000:])
    finally:
        process.terminate()
        process.wait()


def restore_s(side: str, replicated: Replicated, output: Path) -> float:
    """Restore the newest state by a command; return how long it took."""
    if side in (OURS, QUICK_OURS):
        command = [str(_BIN / "strandline"), "replica", "restore", replicated.address, str(output)]
    else:
        command = [litestream(), "restore", "-config", str(replicated.litestream_config()), "-o", str(output)]
        command.append(str(replicated.database.resolve()))
    began_s = time.monotonic()
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=replicated.environ())
    took_s = time.monotonic() - began_s
    if ran.returncode:
        raise AssertionError(f"{side} could not restore: {ran.stderr[-2000:]}")
    return took_s


def memory_mb(pid: int) -> float:
    """Return the most memory that a process has had."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024


def litestream() -> str:
    """Return litestream's program, which is a development dependency."""
    return str(_BIN / "litestream")
