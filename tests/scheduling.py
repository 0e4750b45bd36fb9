"""Which worker runs which tests, and in which order, where several run them.

Invariants: the tests of a file run in one worker, so that what they share is made once; all tests of one Spark session
run in one worker, for a second one would take a second Java, cold and large. What takes longest comes first, so that no
worker is left alone with it in the end. All workers import all modules of tests, each in an order of its own, so that
one of them compiles a module and the others read the result.
"""

import gc
import importlib
import os
import re
from collections.abc import Generator
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

_SLOW = (
    "tests/spark/test_killed.py",
    "tests/spark/test_cluster.py",
    "tests/spark/test_no_leaks.py",
    "tests/spark/streams/test_secrets.py",
    "tests/cli/test_demo.py",
    "tests/broker/clients/test_folds.py",
    "tests/broker/durability/",
    "tests/detect/rules/test_builtin.py",
    "tests/fold/test_cluster.py",
    "tests/fold/test_killed",
    "tests/install/",
    "tests/journal/test_crash_everywhere.py",
    "tests/journal/test_repair.py",
    "tests/pipeline/test_killed.py",
    "tests/pipeline/test_persistence_contract.py",
)
_SPARK = re.compile(r'\bSparkSession\b|usefixtures\("spark"|getfixturevalue\("spark"')
_ROOT = Path(__file__).resolve().parent.parent


@cache
def unit_of(path: str) -> str:
    """Return what a file is run together with: those whose tests use the session that `tests.servers_spark` shares."""
    return "spark" if not path.startswith(_SLOW) and _SPARK.search((_ROOT / path).read_text()) else path


def rank_of(path: str) -> int:
    """Return when a file is run: lower is earlier."""
    return 0 if unit_of(path) == "spark" else 1 if path.startswith(_SLOW) else 2


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect what stays until the end: it is not searched for garbage, neither now nor by any test."""
    gc.disable()
    try:
        _import_in_turns(session.config)
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def _import_in_turns(config: pytest.Config) -> None:
    """Import all modules of tests, where this is one of several workers that run all of them."""
    worker, workers = os.environ.get("PYTEST_XDIST_WORKER", ""), int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if not worker or config.args != config.getini("testpaths"):
        return
    paths = [path for path in sorted((_ROOT / "tests").rglob("test_*.py")) if (path.parent / "__init__.py").exists()]
    first = int(worker.removeprefix("gw")) * len(paths) // workers
    for path in (*paths[first:], *paths[:first]):
        with suppress(Exception):  # it is imported again when it is collected, and that tells what is wrong
            importlib.import_module(".".join(path.relative_to(_ROOT).with_suffix("").parts))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put first what takes longest."""
    items.sort(key=lambda item: rank_of(item.nodeid.partition("::")[0]))


class _ByFile(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid.partition("::")[0])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Hand out whole files, in the order of `pytest_collection_modifyitems`."""
    config.option.loadscopereorder = False
    return _ByFile(config, log)
