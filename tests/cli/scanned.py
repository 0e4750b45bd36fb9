"""A state as scans leave it, made without Spark: sources, pages and inventories, by hand."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pyarrow as pa

from strandline.clock import SystemClock
from strandline.detect import RuleSet, load_builtin
from strandline.detect.locations import Location, format_display, format_url
from strandline.pipeline import Boundary, BoundaryKind, HeldShard, PageBuilder, claim, commit_page
from strandline.pipeline.errors import BATCH_ROWS_MAX
from strandline.pipeline.identity import (
    ConnectorInstanceId,
    RuleFingerprint,
    SecretHash,
    VersionKind,
    connector_instance_id,
    norm_hash,
    object_version_id,
    ovid_hash,
    secret_hash,
    stable_item_id,
)
from strandline.pipeline.pages import FoundSecret, Item, Outcome, Scanned
from strandline.protocol import Cursor, InitialShard, RunKey, ShardSpec
from strandline.scan.inventory import ITEMS, Inventory, SourceFacts, write_inventory
from strandline.scan.policies import remember_policy
from strandline.scan.state import State, open_state

RULES = load_builtin().only(["aws-access-key-id", "github-pat", "private-key"])


class Hit(NamedTuple):
    """A secret of a rule at a place; the name of the secret stands for its bytes."""

    rule: str
    secret: str
    location: Location
    start: int = 0


Items: TypeAlias = Mapping[str, list[Hit] | Outcome | None]


@dataclass
class FakeSource:
    """Items by path: what was found in each, or how it ended; None is an item that nobody looked at.

    `part_of` names the source of which this one is a part.
    """

    tag: str
    name: str
    items: Items
    version: bytes = b"1"
    weak: bool = False
    extra: bytes | None = None
    part_of: str = ""
    instance: ConnectorInstanceId = field(init=False)

    def __post_init__(self) -> None:
        self.instance = connector_instance_id((self.part_of or self.name).encode())


def secret(state: State, name: str) -> SecretHash:
    """Return what stands for a secret."""
    return secret_hash(state.key, norm_hash(name.encode()))


def hit(rule: str, name: str, path: str, line: int = 1, *, confidence: int = 5, **more: object) -> Hit:
    """Return a finding in a file."""
    source = str(more.pop("source", "file"))
    return Hit(rule, name, Location(source, path, line, 7, confidence, **more), start=line * 100)  # type: ignore[arg-type]


def scan(
    where: Path | str, *sources: FakeSource, rules: RuleSet = RULES, run: int = 1, key_file: Path | None = None
) -> None:
    """Leave what a scan of sources leaves."""
    with open_state(str(where), create=True, key_file=key_file) as state:
        policy = rules.policy()
        remember_policy(state.stores, state.tenant, policy.record)
        key = RunKey(state.tenant, run)
        state.stores.coordinator.create_run(1, key, op_id=1)
        state.stores.coordinator.register_shards(1, key, [InitialShard(0, ShardSpec(b"a", b"z"))], op_id=2)
        shard = claim(state.stores.coordinator, key, worker=7, clock=SystemClock())
        assert isinstance(shard, HeldShard)
        looked_at = [
            (source, path, outcome)
            for source in sources
            for path, outcome in source.items.items()
            if outcome is not None
        ]
        fingerprints = policy.fingerprints
        for number, first in enumerate(range(0, len(looked_at), BATCH_ROWS_MAX // 2)):
            shard.renew()
            part = looked_at[first : first + BATCH_ROWS_MAX // 2]
            builder = PageBuilder(shard.context(policy.hash))
            for source, path, outcome in part:
                builder.add(_item(source, path), _outcome(state, fingerprints, outcome))
            page = builder.page(Boundary(BoundaryKind.ORDERED_CONTENT, Cursor(b"m%04d" % number)))
            commit_page(page, state.stores.findings, state.stores.ledger, shard)
        shard.complete()
        _list(state, sources, rules, run)


def _item(source: FakeSource, path: str) -> Item:
    kind = VersionKind.WEAK if source.weak else VersionKind.STRONG
    return Item(stable_item_id(source.tag, source.instance, os.fsencode(path)), object_version_id(source.version), kind)


def _outcome(state: State, fingerprints: Mapping[str, RuleFingerprint], outcome: list[Hit] | Outcome) -> Outcome:
    if not isinstance(outcome, list):
        return outcome
    found = [
        FoundSecret(
            *(fingerprints[one.rule], secret(state, one.secret), one.start, one.start + 20),
            *(format_display(one.location), format_url(one.location)),
        )
        for one in outcome
    ]
    return Scanned(1000, found)


def _list(state: State, sources: Sequence[FakeSource], rules: RuleSet, run: int) -> None:
    rows = []
    for number, source in enumerate(sources):
        for path, outcome in source.items.items():
            item = _item(source, path)
            ovid = None if outcome is None else ovid_hash(item.item, item.version, item.kind)
            named = {"item": item.item, "path": os.fsencode(path), "locator": os.fsencode(path), "source": number}
            listed = {"version": source.version, "size": 1000, "extra": source.extra, "weak": source.weak}
            rows.append({**named, "ovid": ovid, **listed})
    facts = tuple(SourceFacts(one.tag, one.name, one.instance.hex(), bool(one.part_of)) for one in sources)
    names = connector_instance_id("\n".join(one.name for one in sources).encode()).hex()
    head = Inventory(
        inputs=names,
        policy=rules.policy().hash,
        finished_ns=SystemClock().now_ns(),
        run_id=run,
        sources=facts,
        rows=0,
        stamp=0,
        chunks=0,
    )
    write_inventory(state.stores.state, state.tenant, head, pa.Table.from_pylist(rows, schema=ITEMS).to_batches())
