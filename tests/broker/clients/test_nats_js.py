"""nats.js against both servers: a smaller set, and WebSocket, which nats-py would need another library for.

The packages are installed once, by their lock file, beside the Python environment. Where there is no node, no npm, or
no way to the packages, the tests are skipped and say so.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from strandline import follow
from strandline.fold import FoldMode
from tests.broker.clients.servers import StartServer
from tests.servers_nats import NatsServer, free_ports
from tests.waiting import PATIENCE_S

FOLDER = Path(__file__).parent / "js"
BODIES = ["core", "publishing", "pulling", "ordered", "pushing", "kv", "objects", "direct"]
INSTALL_WITHIN_S = 45
OLDEST_NODE = 18


@pytest.fixture(scope="session")
def modules() -> Path:
    """Return the folder with the packages, installed when it is first needed."""
    if not shutil.which("node") or not shutil.which("npm"):
        pytest.skip("node and npm are not installed")
    version = subprocess.run(["node", "--version"], check=True, capture_output=True, text=True).stdout  # noqa: S607
    if int(version.removeprefix("v").split(".")[0]) < OLDEST_NODE:
        pytest.skip(f"node {version.strip()} is older than nats.js wants")
    lock = (FOLDER / "package-lock.json").read_bytes()
    installed = Path(sys.prefix) / "js" / hashlib.sha256(lock).hexdigest()[:16]
    if not installed.exists():
        _install(installed)
    return installed / "node_modules"


def _install(target: Path) -> None:
    """Install into a folder of its own and move it into place, as another process may do the same."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        for name in ("package.json", "package-lock.json", ".npmrc"):
            shutil.copy(FOLDER / name, folder)
        command = [
            "npm",
            "ci",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
            "--fetch-retries=1",
            "--fetch-timeout=20000",
        ]
        try:
            subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=INSTALL_WITHIN_S)
        except (subprocess.SubprocessError, OSError) as error:
            detail = str(getattr(error, "stderr", "") or error).strip()
            pytest.skip(f"npm cannot fetch nats.js: {detail[:300]}")
        staged = Path(folder) / "node_modules"
        place = Path(tempfile.mkdtemp(dir=target.parent))
        staged.rename(place / "node_modules")
        try:
            place.rename(target)
        except OSError:
            shutil.rmtree(place)  # somebody else was quicker


def _run(modules: Path, body: str, address: str, name: str) -> None:
    environment = {**os.environ, "NODE_PATH": str(modules), "NODE_NO_WARNINGS": "1"}
    command = ["node", str(FOLDER / "bodies.cjs"), body, address, name]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE_S, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("mode", [FoldMode.MIRROR, FoldMode.ARCHIVE], ids=["mirror", "archive"])
def test_a_bucket_as_nats_js_makes_it_by_default_is_folded(
    modules: Path, server: NatsServer, name: str, mode: FoldMode, tmp_path: Path
) -> None:
    _run(modules, "bucket", server.url, name)
    with follow(f"{server.url}/{name}", tmp_path / "fold", mode=mode) as fold:
        fold.wait_current(60.0)
        assert dict(fold) == {"fruit.apple": b"3", "fruit.plum": b"5"}
        assert fold.fold_cursor.mode is mode


@pytest.mark.parametrize("body", BODIES)
def test_what_programs_do_with_nats_js(modules: Path, server: NatsServer, name: str, body: str) -> None:
    _run(modules, body, server.url, name)


def test_programs_that_come_by_websocket(modules: Path, start: StartServer, name: str) -> None:
    (port,) = free_ports(1)
    start(f"websocket {{ listen: 127.0.0.1:{port}, no_tls: true }}")
    for body in ("websocket", "kv"):
        _run(modules, body, f"ws://127.0.0.1:{port}", f"{name}-{body}")
