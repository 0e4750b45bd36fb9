"""One round of a fleet: lease, export, publication, completion, removal, and nothing left on this machine.

Invariants: whatever fails, the lease is given back as far as the store allows, the local artifact is removed, and what
is in the object store is unmarked and below a later pointer, which the removal of a later round clears. A removal that
fails does not fail the round.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from strandline.artifacts.errors import ArtifactInvalid
from strandline.artifacts.export_lease import ExportLease
from strandline.artifacts.logical import Previous, export_logical
from strandline.artifacts.manifest import Manifest
from strandline.artifacts.published import Outcome, Pruned, Publication, PublishedArtifacts
from strandline.artifacts.staging import remove_tree
from strandline.artifacts.watched import export_watched
from strandline.errors import StrandlineError
from strandline.fold import Exports, StoreSnapshot

ExportTo = Callable[[Path, Previous | None], Awaitable[Manifest]]
"""Exports the fold to a path, upon an artifact before it where that is possible."""


class RoundOutcome(Enum):
    """How a round ended."""

    PUBLISHED = "the pointer names the new artifact"
    SUPERSEDED = "the pointer names a newer one"
    NOT_OURS = "another exporter has the round"


class RoundResult(NamedTuple):
    """The outcome, the manifest and bytes that were published, what was removed, and why removal failed if it did."""

    outcome: RoundOutcome
    manifest: Manifest | None = None
    uploaded_bytes: int = 0
    pruned: Pruned | None = None
    prune_trouble: str | None = None


def watched_export(exports: Exports) -> ExportTo:
    """Return the way to export a fold that is being watched."""

    async def export_to(path: Path, previous: Previous | None) -> Manifest:
        def export(snapshot: StoreSnapshot, destination: Path) -> Manifest:
            return export_logical(snapshot, destination, previous=previous)

        return (await export_watched(exports, path, export=export)).manifest

    return export_to


async def run_export_round(
    lease: ExportLease, export_to: ExportTo, artifacts: PublishedArtifacts, folder: Path | str
) -> RoundResult:
    """Export and publish a fold, if no other exporter of the fleet does; `folder` is where the artifact is made.

    Use `watched_export(exports)` for a fold that is being watched.
    """
    round_ = await lease.try_acquire()
    if round_ is None:
        return RoundResult(RoundOutcome.NOT_OURS)
    folder = Path(folder)
    try:
        publication = await _published(export_to, artifacts, folder)
    except BaseException:
        with contextlib.suppress(StrandlineError):  # the lease then ends with its expiry
            await round_.abandon()
        raise
    finally:
        await asyncio.to_thread(remove_tree, folder)
    if publication.outcome is not Outcome.PUBLISHED:
        with contextlib.suppress(StrandlineError):
            await round_.abandon()
        return RoundResult(RoundOutcome.SUPERSEDED, publication.manifest, publication.uploaded_bytes)
    result = RoundResult(RoundOutcome.PUBLISHED, publication.manifest, publication.uploaded_bytes)
    try:
        await round_.complete(publication.manifest.rank)
        return result._replace(pruned=await asyncio.to_thread(artifacts.prune, lease.grace_s))
    except StrandlineError as error:
        return result._replace(prune_trouble=str(error))


async def _published(export_to: ExportTo, artifacts: PublishedArtifacts, folder: Path) -> Publication:
    """Export upon the newest artifact and publish; once more, whole, if that one cannot be gone on from any more.

    The pointer left it meanwhile, or files of it were lost in the store: a whole export repairs that.
    """
    await asyncio.to_thread(remove_tree, folder)  # of a round that was killed
    previous = await asyncio.to_thread(artifacts.previous)
    publication = None
    try:
        await export_to(folder, previous)
        publication = await asyncio.to_thread(artifacts.publish, folder)
    except ArtifactInvalid:
        if previous is None:
            raise
    if publication is None or publication.outcome is Outcome.REBASED:
        await asyncio.to_thread(remove_tree, folder)
        await export_to(folder, None)
        publication = await asyncio.to_thread(artifacts.publish, folder)
    return publication
