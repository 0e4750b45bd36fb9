"""The pytest plugin: a server for a test, a server for all, and nothing for those who do not ask."""

import subprocess
import sys
from pathlib import Path

from tests.waiting import PATIENCE_S

TESTS = """
import asyncio
import nats
import pytest

async def publish(url, size):
    client = await nats.connect(url)
    try:
        context = client.jetstream()
        await context.add_stream(name="S", subjects=["s"])
        return (await context.publish("s", b"x" * size)).seq
    finally:
        await client.close()

def test_a_server_is_fresh(nats_server):
    assert asyncio.run(publish(nats_server, 1)) == 1

def test_another_is_fresh_too(nats_server):
    assert asyncio.run(publish(nats_server, 1)) == 1

@pytest.mark.nats_server(max_payload=1024)
def test_a_mark_changes_its_settings(nats_server):
    with pytest.raises(nats.errors.MaxPayloadError):
        asyncio.run(publish(nats_server, 2000))

def test_one_is_shared(shared_nats_server):
    assert asyncio.run(publish(shared_nats_server, 1)) == 1

def test_by_all(shared_nats_server):
    assert asyncio.run(publish(shared_nats_server, 1)) == 2
"""
OVERRIDDEN = """
import pytest
from strandline.broker.settings import ServerSettings

@pytest.fixture(scope="session")
def nats_server_settings():
    return ServerSettings(port=0, server_name="of-the-project")
"""
NAMED = """
import asyncio
import nats

async def name_of(url):
    client = await nats.connect(url)
    found = client._server_info["server_name"]
    await client.close()
    return found

def test_the_project_says_what_servers_are_told(nats_server):
    assert asyncio.run(name_of(nats_server)) == "of-the-project"
"""


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest over a folder, in a process of its own; the plugin is there because we are installed."""
    command = [sys.executable, "-m", "pytest", "-q", "--rootdir", str(folder), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=PATIENCE_S)


def test_tests_have_servers_of_their_own_and_a_shared_one(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "named").mkdir()
    (tmp_path / "named" / "conftest.py").write_text(OVERRIDDEN)
    (tmp_path / "named" / "test_named.py").write_text(NAMED)
    ran = run_pytest(tmp_path, "-W", "error", "--strict-markers")
    assert "6 passed" in ran.stdout, ran.stdout


def test_a_mark_that_says_nothing_known_is_an_error_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import pytest\n@pytest.mark.nats_server(max_paylod=1)\ndef test_one(nats_server): pass\n"
        "@pytest.mark.nats_server(1)\ndef test_two(nats_server): pass\n"
    )
    ran = run_pytest(tmp_path, "-W", "error", "--strict-markers", "--tb=short")
    assert "mark nats_server: ServerSettings has no max_paylod" in ran.stdout
    assert "mark nats_server: its arguments need names" in ran.stdout


def test_a_run_that_asks_for_no_server_imports_nothing_of_ours(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import sys\ndef test_it():\n    assert not [name for name in sys.modules if name.startswith('strandline')]\n"
    )
    ran = run_pytest(tmp_path, "-W", "error")
    assert "1 passed" in ran.stdout, ran.stdout
