"""Contract checks: whether your own backend keeps the promises that the rest of the system depends on.

**Use.** Pass a function that opens an empty backend; the first broken promise raises `ContractBroken`, which names the
check and the observed result.

    from contextlib import nullcontext
    from strandline.testing import DELIVERIES_MAX, check_queue_storage

    check_queue_storage(lambda clock: nullcontext(MyStorage(clock=clock, deliveries_max=DELIVERIES_MAX)))

The checks need no test runner. With one, give each check of `QUEUE_STORAGE_CHECKS` a test of its own: a check is a
function of a fresh storage and its clock, and its name says what must hold.

The pipeline's stores (`DoneLedger`, `FindingsSink`, `Triage`, `Policies`, `PipelineReads`, `ScannerState`) are checked
together, because rows written to one are read through another: `check_persistence` takes a function that opens them
empty, and `PERSISTENCE_CHECKS` has each check by suite and name. `check_coordination` and `COORDINATION_CHECKS` do the
same for a coordinator over a `RecordStore`, `check_source` and `SOURCE_CHECKS` for a source of scans,
`check_kv_store` and `KV_STORE_CHECKS` for a bucket, `check_snapshot_store` and `SNAPSHOT_STORE_CHECKS` for the store of
a fold, `check_object_store` and `OBJECT_STORE_CHECKS` for object storage, `check_lease_store` and
`LEASE_STORE_CHECKS` for the store of a lease's record, and `check_artifacts` and `ARTIFACT_CHECKS` for exports and
imports of a fold.

**Limits.** The checks run in one process and never crash it: durability is for the backend's own tests.
Nothing in the library imports this package.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from strandline.lazy_imports import lazy_names as _lazy_names

if _TYPE_CHECKING:
    from strandline.testing.artifacts import (
        ARTIFACT_CHECKS,
        ArtifactCheck,
        CheckedArtifact,
        OpenArtifactStore,
        check_artifacts,
        run_artifact_check,
    )
    from strandline.testing.contract import ContractBroken
    from strandline.testing.coordination import (
        COORDINATION_CHECKS,
        COORDINATION_LEASE_TTL_NS,
        OpenCoordinator,
        check_coordination,
    )
    from strandline.testing.coordination_helpers import CheckedCoordinator, CoordinationCheck
    from strandline.testing.kv_helpers import CheckedKv, KvStoreCheck
    from strandline.testing.kv_stores import KV_STORE_CHECKS, OpenKv, check_kv_store, run_kv_store_check
    from strandline.testing.lease_stores import (
        LEASE_STORE_CHECKS,
        LeaseStoreCheck,
        OpenLeaseStore,
        check_lease_store,
        run_lease_store_check,
    )
    from strandline.testing.object_stores import (
        OBJECT_STORE_CHECKS,
        ObjectStoreCheck,
        OpenObjects,
        check_object_store,
        run_object_store_check,
    )
    from strandline.testing.persistence import (
        FINDINGS_CHECKS,
        LEDGER_CHECKS,
        PERSISTENCE_CHECKS,
        READS_CHECKS,
        OpenPersistence,
        check_done_ledger,
        check_findings_sink,
        check_persistence,
        check_pipeline_reads,
        check_redaction,
        check_scanner_state,
    )
    from strandline.testing.persistence_helpers import CheckedPersistence, PersistenceCheck, SetFence
    from strandline.testing.persistence_redaction import REDACTION_CHECKS, RedactionCheck
    from strandline.testing.persistence_state import STATE_CHECKS
    from strandline.testing.queue_helpers import DELIVERIES_MAX, CheckedStorage, QueueStorageCheck
    from strandline.testing.queue_storage import QUEUE_STORAGE_CHECKS, OpenStorage, check_queue_storage
    from strandline.testing.snapshot_stores import (
        SNAPSHOT_STORE_CHECKS,
        CheckedSnapshotStore,
        OpenSnapshotStore,
        SnapshotStoreCheck,
        check_snapshot_store,
    )
    from strandline.testing.sources import SOURCE_CHECKS, CheckedSource, OpenSource, SourceCheck, check_source

__all__ = [
    "ARTIFACT_CHECKS",
    "COORDINATION_CHECKS",
    "COORDINATION_LEASE_TTL_NS",
    "DELIVERIES_MAX",
    "FINDINGS_CHECKS",
    "KV_STORE_CHECKS",
    "LEASE_STORE_CHECKS",
    "LEDGER_CHECKS",
    "OBJECT_STORE_CHECKS",
    "PERSISTENCE_CHECKS",
    "QUEUE_STORAGE_CHECKS",
    "READS_CHECKS",
    "REDACTION_CHECKS",
    "SNAPSHOT_STORE_CHECKS",
    "SOURCE_CHECKS",
    "STATE_CHECKS",
    "ArtifactCheck",
    "CheckedArtifact",
    "CheckedCoordinator",
    "CheckedKv",
    "CheckedPersistence",
    "CheckedSnapshotStore",
    "CheckedSource",
    "CheckedStorage",
    "ContractBroken",
    "CoordinationCheck",
    "KvStoreCheck",
    "LeaseStoreCheck",
    "ObjectStoreCheck",
    "OpenArtifactStore",
    "OpenCoordinator",
    "OpenKv",
    "OpenLeaseStore",
    "OpenObjects",
    "OpenPersistence",
    "OpenSnapshotStore",
    "OpenSource",
    "OpenStorage",
    "PersistenceCheck",
    "QueueStorageCheck",
    "RedactionCheck",
    "SetFence",
    "SnapshotStoreCheck",
    "SourceCheck",
    "check_artifacts",
    "check_coordination",
    "check_done_ledger",
    "check_findings_sink",
    "check_kv_store",
    "check_lease_store",
    "check_object_store",
    "check_persistence",
    "check_pipeline_reads",
    "check_queue_storage",
    "check_redaction",
    "check_scanner_state",
    "check_snapshot_store",
    "check_source",
    "run_artifact_check",
    "run_kv_store_check",
    "run_lease_store_check",
    "run_object_store_check",
]

# Import a public name at its first use: the checks of a queue need no package of a scan.
__getattr__ = _lazy_names(
    __name__,
    {
        "artifacts": (
            "ARTIFACT_CHECKS",
            "ArtifactCheck",
            "CheckedArtifact",
            "OpenArtifactStore",
            "check_artifacts",
            "run_artifact_check",
        ),
        "contract": ("ContractBroken",),
        "coordination": ("COORDINATION_CHECKS", "COORDINATION_LEASE_TTL_NS", "OpenCoordinator", "check_coordination"),
        "coordination_helpers": ("CheckedCoordinator", "CoordinationCheck"),
        "kv_helpers": ("CheckedKv", "KvStoreCheck"),
        "kv_stores": ("KV_STORE_CHECKS", "OpenKv", "check_kv_store", "run_kv_store_check"),
        "lease_stores": (
            "LEASE_STORE_CHECKS",
            "LeaseStoreCheck",
            "OpenLeaseStore",
            "check_lease_store",
            "run_lease_store_check",
        ),
        "object_stores": (
            "OBJECT_STORE_CHECKS",
            "ObjectStoreCheck",
            "OpenObjects",
            "check_object_store",
            "run_object_store_check",
        ),
        "persistence": (
            "FINDINGS_CHECKS",
            "LEDGER_CHECKS",
            "PERSISTENCE_CHECKS",
            "READS_CHECKS",
            "OpenPersistence",
            "check_done_ledger",
            "check_findings_sink",
            "check_persistence",
            "check_pipeline_reads",
            "check_redaction",
            "check_scanner_state",
        ),
        "persistence_helpers": ("CheckedPersistence", "PersistenceCheck", "SetFence"),
        "persistence_redaction": ("REDACTION_CHECKS", "RedactionCheck"),
        "persistence_state": ("STATE_CHECKS",),
        "queue_helpers": ("DELIVERIES_MAX", "CheckedStorage", "QueueStorageCheck"),
        "queue_storage": ("QUEUE_STORAGE_CHECKS", "OpenStorage", "check_queue_storage"),
        "snapshot_stores": (
            "SNAPSHOT_STORE_CHECKS",
            "CheckedSnapshotStore",
            "OpenSnapshotStore",
            "SnapshotStoreCheck",
            "check_snapshot_store",
        ),
        "sources": ("SOURCE_CHECKS", "CheckedSource", "OpenSource", "SourceCheck", "check_source"),
    },
)
