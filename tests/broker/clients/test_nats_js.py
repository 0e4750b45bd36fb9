"""nats.js against both servers: a smaller set, and WebSocket, which nats-py would need another library for.

The packages are installed once, by their lock file, beside the Python environment. Where there is no node, no npm, or
no way to the packages, the tests are skipped and say so.
"""

import os
import subprocess
from pathlib import Path

import pytest

from strandline import follow
from strandline.fold import FoldMode
from tests.broker.clients.servers import StartServer
from tests.js_packages import js_packages
from tests.ports import free_ports
from tests.servers_nats import NatsServer
from tests.waiting import PATIENCE_S

FOLDER = Path(__file__).parent / "js"
BODIES = ["core", "publishing", "pulling", "ordered", "pushing", "kv", "objects", "direct"]


@pytest.fixture(scope="session")
def modules() -> Path:
    """Return the folder with the packages, installed when it is first needed."""
    return js_packages(FOLDER)


def _run(modules: Path, body: str, address: str, *names: str) -> None:
    """Run a program, once more under each other name: its calls, and acknowledgements, have limits of seconds."""
    environment = {**os.environ, "NODE_PATH": str(modules), "NODE_NO_WARNINGS": "1"}
    for name in names:
        command = ["node", str(FOLDER / "bodies.cjs"), body, address, name]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE_S, env=environment)
        if done.returncode == 0:
            return
    pytest.fail(done.stdout + done.stderr)


@pytest.mark.parametrize("mode", [FoldMode.MIRROR, FoldMode.ARCHIVE], ids=["mirror", "archive"])
def test_a_bucket_as_nats_js_makes_it_by_default_is_folded(
    modules: Path, server: NatsServer, name: str, mode: FoldMode, tmp_path: Path
) -> None:
    _run(modules, "bucket", server.url, name)
    with follow(f"{server.url}/{name}", tmp_path / "fold", mode=mode) as fold:
        fold.wait_current(PATIENCE_S)
        assert dict(fold) == {"fruit.apple": b"3", "fruit.plum": b"5"}
        assert fold.fold_cursor.mode is mode


@pytest.mark.parametrize("body", BODIES)
def test_what_programs_do_with_nats_js(modules: Path, server: NatsServer, name: str, body: str) -> None:
    _run(modules, body, server.url, name, f"{name}-2", f"{name}-3")


def test_programs_that_come_by_websocket(modules: Path, start: StartServer, name: str) -> None:
    (port,) = free_ports(1)
    start(f"websocket {{ listen: 127.0.0.1:{port}, no_tls: true }}")
    for body in ("websocket", "kv"):
        _run(modules, body, f"ws://127.0.0.1:{port}", *(f"{name}-{body}-{number}" for number in range(3)))
