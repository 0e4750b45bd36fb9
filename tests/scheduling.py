"""Which worker runs which tests, and in which order, where several run them.

Invariants: the tests of a file run in one worker, so that what they share is made once; all tests of one Spark session
run in one worker, for a second one would take a second Java, cold and large. What takes longest comes first, so that no
worker is left alone with it in the end.
"""

import re
from functools import cache
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

_SLOW = (
    "tests/spark/test_killed.py",
    "tests/spark/test_no_leaks.py",
    "tests/spark/streams/test_secrets.py",
    "tests/spark/test_class_archive.py",
    "tests/cli/test_demo.py",
    "tests/broker/clients/test_folds.py",
    "tests/broker/durability/",
    "tests/detect/rules/test_builtin.py",
    "tests/fold/test_cluster.py",
    "tests/fold/test_killed",
    "tests/journal/test_crash_everywhere.py",
    "tests/journal/test_repair.py",
    "tests/pipeline/test_killed.py",
    "tests/pipeline/test_persistence_contract.py",
)
_SPARK = re.compile(r'\bSparkSession\b|usefixtures\("spark"|getfixturevalue\("spark"|spark_standalone')
_ROOT = Path(__file__).resolve().parent.parent


@cache
def unit_of(path: str) -> str:
    """Return what a file is run together with: those whose tests use the session that `tests.servers_spark` shares."""
    return "spark" if not path.startswith(_SLOW) and _SPARK.search((_ROOT / path).read_text()) else path


def rank_of(path: str) -> int:
    """Return when a file is run: lower is earlier."""
    return 0 if unit_of(path) == "spark" else 1 if path.startswith(_SLOW) else 2


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
