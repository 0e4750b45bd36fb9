"""A test that leaves something behind fails, and what it left is gone before the next one."""

import os
import subprocess
import sys
from pathlib import Path

from tests.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parent.parent
CONFTEST = """
from tests import leftovers
from tests.leftovers import nothing_left_behind, pytest_fixture_setup, restore_signals
from tests.leftovers import pytest_sessionfinish, pytest_sessionstart
leftovers.ENDS_WITHIN_S = 0.1
restore_signals()
"""
TESTS = """
import os, signal, subprocess, sys
import pytest

SLEEP = [sys.executable, "-c", "import time; time.sleep(1000)"]
ASK = '''
import signal
print(signal.getsignal(2) is signal.default_int_handler, signal.getsignal(3) == signal.SIG_DFL)
print(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
'''
left = []

@pytest.fixture(scope="module")
def server():
    with subprocess.Popen(SLEEP) as child:
        yield child
        child.kill()

@pytest.fixture
def dynamic(request):
    return request.getfixturevalue("server")

def test_children_start_with_default_signals():
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    asked = subprocess.run([sys.executable, "-S", "-c", ASK], capture_output=True, text=True, check=True)
    assert asked.stdout == "True True\\nset()\\n"

def test_leaves_a_process():
    left.append(subprocess.Popen(SLEEP))

def test_the_process_is_gone():
    assert left[0].poll() == -signal.SIGKILL

def test_leaves_a_process_and_fails():
    left.append(subprocess.Popen(SLEEP))
    raise AssertionError("on purpose")

def test_a_server_of_the_module_stays(dynamic):
    assert dynamic.poll() is None

def test_the_server_is_still_there(server):
    assert server.poll() is None
    assert left[1].poll() == -signal.SIGKILL

def test_leaves_environment_folder_and_handler(tmp_path):
    os.environ["LEFT"] = "behind"
    os.environ["PATH"] += ":/left"
    os.chdir(tmp_path)
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])

def test_all_of_it_was_put_back(tmp_path):
    assert "LEFT" not in os.environ
    assert ":/left" not in os.environ["PATH"]
    assert os.getcwd() != str(tmp_path)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
"""


def test_a_test_that_leaves_something_fails_and_the_next_finds_nothing_of_it(tmp_path: Path) -> None:
    ran = run(TESTS, tmp_path)
    ends = [line for line in ran.stdout.splitlines() if line.startswith(("FAILED", "ERROR", "PASSED"))]
    failed = {line.split("::")[1].split(" - ")[0]: line for line in ends if not line.startswith("PASSED")}
    assert set(failed) == {
        "test_leaves_a_process",
        "test_leaves_a_process_and_fails",
        "test_leaves_environment_folder_and_handler",
    }, ran.stdout
    left = "left a process running: ", "left a handler of SIGTERM", "left signals blocked"
    for what in (*left, "changed the environment: LEFT, PATH"):
        assert f"the test {what}" in ran.stdout


def test_a_run_whose_tests_leave_a_file_where_they_run_fails(tmp_path: Path) -> None:
    ran = run("def test_writes():\n    open('host=', 'w').close()\n", tmp_path)
    assert ran.returncode == 1
    assert f"a test left in {tmp_path}: host=" in ran.stdout
    assert "1 passed" in ran.stdout
    assert run("def test_writes():\n    open('host=', 'w').close()\n", tmp_path).returncode == 0, "it was there"


def run(tests: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run tests of its own in a folder, as `nohup` does and shells do with their background jobs."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text(tests)
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rA", "--rootdir", str(folder)]
    ignoring = 'trap "" INT QUIT; exec "$@"'
    return subprocess.run(
        ["/bin/sh", "-c", ignoring, "sh", *pytest, "-W", "error::pytest.PytestUnraisableExceptionWarning"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
