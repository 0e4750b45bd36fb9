"""The contracts of the pipeline's stores as checks, each a function of empty stores.

    ledger       `DoneLedger`                              findings   `FindingsSink`
    reads        `PipelineReads`, `Triage`, `Policies`     state      `ScannerState`
    redaction    the library's own types; no stores

A check is named by its suite and its function: "ledger/fail_then_scan". Those that the reference system has too bear
its names; together with them stand those that it lacks: every order of rows through the backend, ties, stale fences,
batches over the limit, unknown ranks, tenants that must not see one another, and what a refusal may show.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

from strandline.testing.contract import named
from strandline.testing.persistence_findings import ROW_CHECKS
from strandline.testing.persistence_helpers import CheckedPersistence, PersistenceCheck
from strandline.testing.persistence_isolation import TWIN_CHECKS
from strandline.testing.persistence_ledger import RECORD_CHECKS
from strandline.testing.persistence_limits import LIMIT_CHECKS
from strandline.testing.persistence_merging import LEDGER_MERGE_CHECKS, OBSERVATION_MERGE_CHECKS
from strandline.testing.persistence_observed import OBSERVED_CHECKS
from strandline.testing.persistence_reads import READ_CHECKS
from strandline.testing.persistence_redaction import REDACTION_CHECKS
from strandline.testing.persistence_refusals import REFUSAL_CHECKS
from strandline.testing.persistence_state import STATE_CHECKS
from strandline.testing.persistence_triage import TRIAGE_CHECKS

OpenPersistence = Callable[[], AbstractContextManager[CheckedPersistence]]
"""Opens empty stores over the same rows, with a clock that they read and the check moves."""

LEDGER_CHECKS: tuple[PersistenceCheck, ...] = (*RECORD_CHECKS, *LIMIT_CHECKS, *LEDGER_MERGE_CHECKS)
"""Every promise of `DoneLedger`, as a function whose name says what must hold."""

FINDINGS_CHECKS: tuple[PersistenceCheck, ...] = (*ROW_CHECKS, *REFUSAL_CHECKS, *OBSERVATION_MERGE_CHECKS)
"""Every promise of `FindingsSink`, the same way."""

READS_CHECKS: tuple[PersistenceCheck, ...] = (*READ_CHECKS, *OBSERVED_CHECKS, *TWIN_CHECKS, *TRIAGE_CHECKS)
"""Every promise of `PipelineReads`, `Triage` and `Policies`, the same way."""

PERSISTENCE_CHECKS: Mapping[str, PersistenceCheck] = {
    f"{suite}/{check.__name__}": check
    for suite, checks in (
        ("ledger", LEDGER_CHECKS),
        ("findings", FINDINGS_CHECKS),
        ("reads", READS_CHECKS),
        ("state", STATE_CHECKS),
    )
    for check in checks
}
"""Every check that takes stores, by suite and name."""


def check_done_ledger(open_stores: OpenPersistence) -> None:
    """Run every check of a done-ledger over stores of its own; `ContractBroken` names the first that fails."""
    _check_suite("ledger", open_stores)


def check_findings_sink(open_stores: OpenPersistence) -> None:
    """Run every check of a findings sink over stores of its own; `ContractBroken` names the first that fails."""
    _check_suite("findings", open_stores)


def check_pipeline_reads(open_stores: OpenPersistence) -> None:
    """Run every check of reads, triage and policies over stores of its own, as above."""
    _check_suite("reads", open_stores)


def check_scanner_state(open_stores: OpenPersistence) -> None:
    """Run every check of scanner state over stores of its own, as above."""
    _check_suite("state", open_stores)


def check_redaction() -> None:
    """Run every check of what the library's own types show; `ContractBroken` names the first that fails."""
    for check in REDACTION_CHECKS:
        with named(f"redaction/{check.__name__}"):
            check()


def check_persistence(open_stores: OpenPersistence) -> None:
    """Run every check of every suite; `ContractBroken` names the first that fails."""
    _check_suite("", open_stores)
    check_redaction()


def _check_suite(suite: str, open_stores: OpenPersistence) -> None:
    for name, check in PERSISTENCE_CHECKS.items():
        if name.startswith(suite):
            with named(name), open_stores() as stores:
                check(stores)
