"""Packages of npm that tests talk to: installed once, by their lock file, beside the Python environment.

Where there is no node, no npm, or no way to the packages, the tests are skipped and say so.
"""

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

INSTALL_WITHIN_S = 170
OLDEST_NODE = 18


def js_packages(folder: Path) -> Path:
    """Return `node_modules` with what the lock file of a folder names, or skip with the reason."""
    if not shutil.which("node") or not shutil.which("npm"):
        pytest.skip("node and npm are not installed")
    version = subprocess.run(["node", "--version"], check=True, capture_output=True, text=True).stdout  # noqa: S607
    if int(version.removeprefix("v").split(".")[0]) < OLDEST_NODE:
        pytest.skip(f"node {version.strip()} is older than {OLDEST_NODE}")
    lock = (folder / "package-lock.json").read_bytes()
    installed = Path(sys.prefix) / "js" / hashlib.sha256(lock).hexdigest()[:16]
    if not installed.exists():
        _install(folder, installed)
    return installed / "node_modules"


def _install(source: Path, target: Path) -> None:
    """Install into a folder of its own and move it into place, as another process may do the same."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        for name in ("package.json", "package-lock.json", ".npmrc"):
            shutil.copy(source / name, folder)
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
            pytest.skip(f"npm cannot fetch the packages of {source}: {detail[:300]}")
        staged = Path(folder) / "node_modules"
        place = Path(tempfile.mkdtemp(dir=target.parent))
        staged.rename(place / "node_modules")
        try:
            place.rename(target)
        except OSError:
            shutil.rmtree(place)  # another process was quicker
