"""The stores of a lake, over one cache of its pages."""

from typing import NamedTuple

from strandline.pipeline.lake.database import LakeDatabase
from strandline.pipeline.lake.findings import LakeFindings
from strandline.pipeline.lake.ledger import LakeLedger
from strandline.pipeline.lake.page_cache import PageCache
from strandline.pipeline.lake.reads import LakeReads
from strandline.pipeline.lake.state import LakeState
from strandline.pipeline.scope import FenceOf, unknown_fence


class LakeStores(NamedTuple):
    """The stores of a lake."""

    findings: LakeFindings
    ledger: LakeLedger
    reads: LakeReads
    state: LakeState
    cache: PageCache


def open_lake(database: LakeDatabase, fence_of: FenceOf = unknown_fence, key_check: bytes | None = None) -> LakeStores:
    """Open the stores of a lake; closing the database closes them."""
    cache = PageCache(database.store, database.clock)
    state = LakeState(database.store, fence_of)
    findings = LakeFindings(cache, state, fence_of, key_check)
    return LakeStores(findings, LakeLedger(cache, fence_of), LakeReads(cache), state, cache)
