"""Memory, SQLite, PostgreSQL and lakes keep every promise of the pipeline's stores."""

from contextlib import AbstractContextManager, nullcontext

import pytest

from strandline.testing import (
    FINDINGS_CHECKS,
    LEDGER_CHECKS,
    PERSISTENCE_CHECKS,
    READS_CHECKS,
    STATE_CHECKS,
    CheckedPersistence,
    check_done_ledger,
    check_findings_sink,
    check_persistence,
    check_pipeline_reads,
    check_scanner_state,
)
from tests.pipeline.backends import LAKES, QUICK, memory_stores, postgres_pipeline, stores  # noqa: F401 - fixtures


@pytest.mark.parametrize("check", PERSISTENCE_CHECKS)
@pytest.mark.parametrize("backend", QUICK)
def test_stores_keep_the_contract(check: str, stores: CheckedPersistence) -> None:  # noqa: F811 - the fixture
    PERSISTENCE_CHECKS[check](stores)


_MANY = {name for name in PERSISTENCE_CHECKS if "order" in name or "thousand" in name or "twin" in name}
"""Checks of hundreds of pages or thousands of rows, each of which is an object or more."""


@pytest.mark.parametrize("check", [name for name in PERSISTENCE_CHECKS if name not in _MANY])
@pytest.mark.parametrize("backend", ["objects in memory", "objects on SeaweedFS"])
def test_lakes_keep_the_contract(check: str, stores: CheckedPersistence) -> None:  # noqa: F811 - the fixture
    PERSISTENCE_CHECKS[check](stores)


@pytest.mark.long
@pytest.mark.parametrize("check", PERSISTENCE_CHECKS)
@pytest.mark.parametrize("backend", LAKES)
def test_lakes_keep_all_of_the_contract(check: str, stores: CheckedPersistence) -> None:  # noqa: F811 - the fixture
    PERSISTENCE_CHECKS[check](stores)


@pytest.mark.parametrize(
    ("run", "count"),
    [
        (check_done_ledger, len(LEDGER_CHECKS)),
        (check_findings_sink, len(FINDINGS_CHECKS)),
        (check_pipeline_reads, len(READS_CHECKS)),
        (check_scanner_state, len(STATE_CHECKS)),
        (check_persistence, len(PERSISTENCE_CHECKS)),
    ],
)
def test_checks_run_without_a_test_runner_over_stores_of_their_own(run: object, count: int) -> None:
    opened: list[CheckedPersistence] = []

    def open_stores() -> AbstractContextManager[CheckedPersistence]:
        opened.append(memory_stores())
        return nullcontext(opened[-1])

    assert callable(run)
    run(open_stores)
    assert len(opened) == count
