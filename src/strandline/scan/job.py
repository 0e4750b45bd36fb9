"""What a worker is given: which run of which scan, and what it has to know of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from strandline.protocol.shards import RunKey
from strandline.scan.request import ScanRequest


@dataclass(frozen=True)
class Job:
    """A run to work on: `slots` workers are at it; `forgiven` shards start anew under a fence, whatever they did."""

    request: ScanRequest
    run: RunKey = field(repr=False)
    manifest: int
    slots: int
    forgiven: Mapping[int, int] = field(default_factory=dict)
