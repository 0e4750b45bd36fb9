"""Which worker runs which tests, and in which order, where several run them.

Invariants: the tests of a file run in one worker, so that what they share is made once; all tests of one Spark session
run in one worker, for a second one would take a second Java, cold and large. What takes longest comes first, so that no
worker is left alone with it in the end.
"""

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

_SLOW = (
    "tests/spark/test_killed.py",
    "tests/spark/journal_scan/test_scan.py",
    "tests/cli/test_demo.py",
    "tests/cli/test_scan_trouble.py",
    "tests/broker/durability/",
    "tests/fold/test_cluster.py",
    "tests/fold/test_killed",
    "tests/pipeline/test_killed.py",
)
_SPARK = ("tests/spark/", "tests/cli/test_scan", "tests/cli/test_findings")


def unit_of(path: str) -> str:
    """Return what a file is run together with."""
    return "spark" if path.startswith(_SPARK) and not path.startswith(_SLOW) else path


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
