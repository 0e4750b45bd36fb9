"""Scopes: the page of a write, so that a receipt fits no other page.

Invariants: a scope is fixed before anything is written, and every stage of a commit is checked against it. Units are
compared by their distinct keys, not by counting: two items of one object version are one unit.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, Self, TypeAlias

from blake3 import blake3

from strandline.errors import InvalidInput
from strandline.pipeline.identity import DIGEST_BYTES, OvidHash, PolicyHash, TenantId
from strandline.protocol.errors import StaleFence
from strandline.protocol.shards import Cursor


class WriteContext(NamedTuple):
    """The writer of a page; every row of the page carries it."""

    tenant: TenantId
    policy: PolicyHash
    run_id: int
    shard_id: int
    fence: int

    def __repr__(self) -> str:
        return f"WriteContext(run_id={self.run_id}, shard_id={self.shard_id}, fence={self.fence})"


class BoundaryKind(IntEnum):
    """The family of a cursor; equal bytes of two families are different positions."""

    ORDERED_CONTENT = 0
    REPO_FRONTIER = 1


class Boundary(NamedTuple):
    """The end of a page."""

    kind: BoundaryKind
    cursor: Cursor


@dataclass(frozen=True, slots=True)
class Units:
    """The distinct keys of a page: how many, and their digest."""

    count: int
    digest: bytes = field(repr=False)

    @classmethod
    def of(cls, ovids: Iterable[OvidHash]) -> Self:
        """Return the units of so many keys, which may repeat and stand in any order."""
        distinct = sorted(set(ovids))
        return cls(len(distinct), blake3(b"".join(distinct)).digest())


FenceOf: TypeAlias = Callable[[TenantId, int, int], int | None]
"""The current fence of a shard (tenant, run, shard), or None where it is not known."""


def unknown_fence(tenant: TenantId, run_id: int, shard_id: int) -> int | None:  # noqa: ARG001 - knows no shard
    """Return None: no fence is known."""
    return None


def check_fence(writer: WriteContext, current: int | None) -> None:
    """Reject a writer whose shard has a newer fence; without a known fence all may write."""
    if current is not None and writer.fence < current:
        raise StaleFence(writer.shard_id, writer.fence, current)


@dataclass(frozen=True, slots=True)
class CommitScope:
    """The identity of a page: its writer, its units and its end."""

    context: WriteContext
    units: Units
    boundary: Boundary

    def __post_init__(self) -> None:
        if self.units.count < 1:
            raise InvalidInput("a page without units commits nothing", hint="checkpoint an empty page directly")
        check_context(self.context)


def check_context(context: WriteContext) -> None:
    """Reject a writer whose ids a store cannot hold."""
    for name in ("tenant", "policy"):
        value = getattr(context, name)
        if not isinstance(value, bytes) or len(value) != DIGEST_BYTES:
            raise InvalidInput(f"a writer's {name} is not {DIGEST_BYTES} bytes")
    for name, low in (("run_id", -(2**63)), ("shard_id", -(2**63)), ("fence", 0)):
        value = getattr(context, name)
        if not isinstance(value, int) or not low <= value < 2**63:
            raise InvalidInput(f"a writer's {name} is not a number in [{low}, 2^63)")
