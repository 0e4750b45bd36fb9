"""A fold as files that can be moved: exported, published under the name of its own bytes, fetched, imported.

**Promise.** The pointer never names a payload that is not whole, and never moves back. An artifact that exists is
whole, and its data is exactly that of its cursor; a torn, tampered, foreign or unfit one never becomes a fold.

**Invariants.** An export is of one moment between two batches. The copy is opened again, and must have the cursor and
the digest of that moment, before the manifest is written; the manifest is the last file, and the whole is renamed. An
import checks names, links and sizes before it reads data, the hash of a file before it is used, and cursor and digest
of what became the fold. Everything is staged beside its destination, synced, and renamed: a crash leaves nothing there.

In object storage files and manifest come first, the pointer last, by a conditional write upon the pointer that was read
(`strandline.protocol.artifacts`). Only files of the pointer's target may be shared by the next artifact, so removal
needs no lock: what is below the pointer's rank and unmarked can never be published again.

**Format.** `MANIFEST.json` and files below `data/` (docs/formats/artifact.md). The raw form has a store's own files: a
compacted log, a database, a checkpoint. The logical form has tables in Parquet, sorted by key, that every store can be
made of and other programs can read: a base, and runs that change it.

**Interfaces.**

| name | what |
|---|---|
| `take_snapshot(store)`, `export_snapshot(snapshot, path)` | a moment, in the store's thread; its files, anywhere |
| `export_logical(snapshot, path, previous=…)` | the same as tables; with `local_previous(path)`, what changed since |
| `export_fold(store, path)` | both, for a store that nothing changes meanwhile |
| `ReaderSnapshot(path)` | a moment of a fold that another process keeps up to date, for `export_logical` |
| `publish_fold(path, artifacts)` | export and publication of such a fold |
| `export_watched(exports, path)` | the same for a fold that is watched (`strandline.fold.Exports`) |
| `import_fold(artifact, path, …)` | a fold of an artifact; refusals name their rule (`Refusal`) |
| `PublishedArtifacts.open(address)` | artifacts in object storage: `publish`, `fetch`, `newest`, `previous`, `prune` |
| `ExportLease(cell, holder, ttl_s=…)` | one exporter for each fleet and round, over `ObjectCell` or `BucketCell` |
| `run_export_round(lease, export_to, artifacts, folder)` | lease, export, publication, removal |
| `bootstrap_fold`, `fetch_fold`, `ArtifactRestorer` | folds of published artifacts (`follow(…, bootstrap=…)`) |
| `log_continues(manifest, retention, now_ns)` | whether a fold of an artifact takes only what came after it |
| `Manifest`, `format_manifest`, `parse_manifest` | what an artifact holds |
| `strandline.testing.check_artifacts` | whether exports and imports of a store keep all this |

**Trade-offs.** Tables are the default for moving folds, and the raw form for copies on one machine (decision 0037). An
increment is the difference of two states: exact, and found by reading the whole fold. A raw copy is verified by reading
all of it again, for a copy that was never read is a hope. A fold is fetched and made at once: tables are downloaded,
checked and written in three threads, and the files of a raw artifact become the fold; nothing but the fold is
synced. The pause of a watch is the taking of the snapshot alone:
which records of a log count, a read transaction, or a checkpoint of RocksDB; sorting, copying and hashing run beside,
and share the processor with the watch. A snapshot keeps old data alive while it is open: the pieces of a log, the
write-ahead log of SQLite, tables of RocksDB. Links to RocksDB's tables take no space until the fold compacts them away,
so artifacts are meant to be moved and removed, not collected.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from strandline.lazy_imports import lazy_names as _lazy_names

if _TYPE_CHECKING:
    from strandline.artifacts.continuity import Continuity, log_continues
    from strandline.artifacts.errors import (
        ArtifactInvalid,
        ArtifactUnfit,
        DestinationTaken,
        NoArtifact,
        PointerContended,
        Refusal,
    )
    from strandline.artifacts.export_lease import (
        BucketCell,
        ExportLease,
        ExportRecord,
        ExportRound,
        ObjectCell,
        RecordCell,
    )
    from strandline.artifacts.exporter import export_fold, export_snapshot, prepare_snapshot, take_snapshot
    from strandline.artifacts.importer import import_fold, read_artifact
    from strandline.artifacts.logical import Previous, export_logical, local_previous
    from strandline.artifacts.manifest import ArtifactFile, Form, Manifest, format_manifest, parse_manifest
    from strandline.artifacts.published import Outcome, Pruned, Publication, PublishedArtifacts
    from strandline.artifacts.read_only import ReaderSnapshot, publish_fold
    from strandline.artifacts.restorer import ArtifactRestorer, bootstrap_fold, fetch_fold
    from strandline.artifacts.rounds import RoundOutcome, RoundResult, run_export_round, watched_export
    from strandline.artifacts.watched import WatchedExport, export_watched

__all__ = [
    "ArtifactFile",
    "ArtifactInvalid",
    "ArtifactRestorer",
    "ArtifactUnfit",
    "BucketCell",
    "Continuity",
    "DestinationTaken",
    "ExportLease",
    "ExportRecord",
    "ExportRound",
    "Form",
    "Manifest",
    "NoArtifact",
    "ObjectCell",
    "Outcome",
    "PointerContended",
    "Previous",
    "Pruned",
    "Publication",
    "PublishedArtifacts",
    "ReaderSnapshot",
    "RecordCell",
    "Refusal",
    "RoundOutcome",
    "RoundResult",
    "WatchedExport",
    "bootstrap_fold",
    "export_fold",
    "export_logical",
    "export_snapshot",
    "export_watched",
    "fetch_fold",
    "format_manifest",
    "import_fold",
    "local_previous",
    "log_continues",
    "parse_manifest",
    "prepare_snapshot",
    "publish_fold",
    "read_artifact",
    "run_export_round",
    "take_snapshot",
    "watched_export",
]

# Import what is offered when it is first asked for: `strandline.follow` without artifacts reads no tables.
__getattr__ = _lazy_names(
    __name__,
    {
        "continuity": ("Continuity", "log_continues"),
        "errors": ("ArtifactInvalid", "ArtifactUnfit", "DestinationTaken", "NoArtifact", "PointerContended", "Refusal"),
        "export_lease": ("BucketCell", "ExportLease", "ExportRecord", "ExportRound", "ObjectCell", "RecordCell"),
        "exporter": ("export_fold", "export_snapshot", "prepare_snapshot", "take_snapshot"),
        "importer": ("import_fold", "read_artifact"),
        "logical": ("Previous", "export_logical", "local_previous"),
        "manifest": ("ArtifactFile", "Form", "Manifest", "format_manifest", "parse_manifest"),
        "published": ("Outcome", "Pruned", "Publication", "PublishedArtifacts"),
        "read_only": ("ReaderSnapshot", "publish_fold"),
        "restorer": ("ArtifactRestorer", "bootstrap_fold", "fetch_fold"),
        "rounds": ("RoundOutcome", "RoundResult", "run_export_round", "watched_export"),
        "watched": ("WatchedExport", "export_watched"),
    },
)
