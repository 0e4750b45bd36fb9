"""The contract of the pipeline's stores catches those that break it, and names what they broke."""

import inspect
from contextlib import nullcontext
from types import ModuleType

import pytest

from strandline.errors import StrandlineError
from strandline.pipeline.findings import FindingRecord
from strandline.pipeline.identity import NormHash, SecretHash, TenantSecretKey
from strandline.pipeline.scope import WriteContext
from strandline.protocol.shards import Cursor
from strandline.testing import (
    PERSISTENCE_CHECKS,
    REDACTION_CHECKS,
    ContractBroken,
    check_done_ledger,
    check_persistence,
    check_redaction,
    persistence_findings,
    persistence_isolation,
    persistence_ledger,
    persistence_limits,
    persistence_merging,
    persistence_observed,
    persistence_reads,
    persistence_redaction,
    persistence_refusals,
    persistence_state,
    persistence_triage,
)
from strandline.testing.persistence_helpers import done, found, same_row
from tests.pipeline import broken_findings  # noqa: F401 - it adds to the list
from tests.pipeline.broken import CAUGHT, KeepsTheFirst, stores_with
from tests.pipeline.broken_reads import SharesKeys

MODULES: dict[ModuleType, str] = {
    persistence_ledger: "ledger",
    persistence_limits: "ledger",
    persistence_merging: "",
    persistence_findings: "findings",
    persistence_refusals: "findings",
    persistence_reads: "reads",
    persistence_observed: "reads",
    persistence_isolation: "reads",
    persistence_triage: "reads",
    persistence_state: "state",
}
SHOWN: list[tuple[type, type, str]] = [
    (NormHash, bytes, "norm_hash_debug"),
    (TenantSecretKey, bytes, "norm_hash_debug"),
    (SecretHash, bytes, "secret_hash_debug"),
    (FindingRecord, tuple, "finding_record_debug"),
    (Cursor, tuple, "cursors_and_tenants_debug"),
    (WriteContext, tuple, "cursors_and_tenants_debug"),
]


@pytest.mark.parametrize(("store", "check"), CAUGHT, ids=lambda part: getattr(part, "__name__", part))
def test_a_broken_store_is_caught_by_the_check_for_its_promise(store: type, check: str) -> None:
    with pytest.raises((ContractBroken, StrandlineError)):
        PERSISTENCE_CHECKS[check](stores_with(store))


def test_every_check_catches_something() -> None:
    assert {check for _, check in CAUGHT} == set(PERSISTENCE_CHECKS)


def test_every_broken_store_is_one_class_with_one_reason() -> None:
    assert len(set(CAUGHT)) == len(CAUGHT)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_every_check_that_is_written_is_listed(module: ModuleType) -> None:
    written = {
        function
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
    }
    listed = {check for name, check in PERSISTENCE_CHECKS.items() if name.startswith(MODULES[module])}
    assert written <= listed
    assert all(function.__doc__ for function in written)


def test_the_error_names_the_suite_and_the_check() -> None:
    with pytest.raises(ContractBroken) as caught:
        check_done_ledger(lambda: nullcontext(stores_with(KeepsTheFirst)))
    assert caught.value.check == "ledger/fail_then_scan"
    assert str(caught.value).startswith("ledger/fail then scan: the row differs in status")


def test_all_checks_at_once_name_the_first_that_fails() -> None:
    with pytest.raises(ContractBroken) as caught:
        check_persistence(lambda: nullcontext(stores_with(SharesKeys)))
    assert caught.value.check == "state/keys_are_their_tenants_alone"


def test_a_difference_is_told_by_the_names_of_columns_without_ids() -> None:
    row, other = found("one"), found("other")
    with pytest.raises(ContractBroken) as caught:
        same_row("the row", row.finding, other.finding)
    assert caught.value.problem == "the row differs in finding_id, secret"
    with pytest.raises(ContractBroken) as caught:
        same_row("the row", done("a"), done("a")._replace(bytes_seen=5))
    assert caught.value.problem == "the row differs in bytes_seen (100 for 5)"


def test_every_redaction_check_catches_something() -> None:
    assert {check for *_, check in SHOWN} == {check.__name__ for check in REDACTION_CHECKS}
    written = {
        name for name, _ in inspect.getmembers(persistence_redaction, inspect.isfunction) if name.endswith("debug")
    }
    assert written == {check.__name__ for check in REDACTION_CHECKS}


@pytest.mark.parametrize(("kind", "base", "check"), SHOWN, ids=lambda part: getattr(part, "__name__", part))
def test_a_type_that_shows_its_bytes_is_caught(
    kind: type, base: type, check: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, "__repr__", base.__repr__)
    monkeypatch.setattr(kind, "__str__", base.__repr__)
    with pytest.raises(ContractBroken) as caught:
        check_redaction()
    assert caught.value.check == f"redaction/{check}"
