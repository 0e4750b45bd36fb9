"""A lake beside its peers: page commits beside PostgreSQL, compaction beside plain Parquet, reads beside obstore.

Scans of made items by size are in `_lake_scans`, tenfold from 100,000 up to ITEMS (1,000,000): for more, run
`make bench ONLY=lake ITEMS=10000000`. A page has 1,000 rows and ten findings, and is committed as workers do it:
findings, ledger, checkpoint. PostgreSQL and SeaweedFS are real servers on this machine, PostgreSQL with fsync. The peer
of a compaction reads the same pages, sorts them and writes a file; obstore alone fetches the same objects with as many
threads.

Rows and bodies are read back and compared before a figure counts.
"""

import itertools
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
from obstore.store import S3Store

from benchmarks._harness import Row, compare, medians, report, scratch, sized
from benchmarks._lake_scans import scan_rows
from strandline.clock import SystemClock
from strandline.objects import open_objects
from strandline.pipeline.commit import commit_page
from strandline.pipeline.held_shard import HeldShard, claim
from strandline.pipeline.identity import (
    ObjectVersionId,
    PolicyHash,
    RuleFingerprint,
    SecretHash,
    StableItemId,
    TenantId,
)
from strandline.pipeline.lake.compaction import Compaction
from strandline.pipeline.lake.database import LakeDatabase
from strandline.pipeline.pages import FoundSecret, Gaps, Item, PageBuilder, Scanned
from strandline.pipeline.scope import Boundary, BoundaryKind
from strandline.pipeline.stores import Stores, open_stores
from strandline.protocol.runs import InitialShard
from strandline.protocol.shards import Cursor, RunKey, ShardSpec
from strandline.scan.sources import ObjectSource
from strandline.scan.sources.objects import FETCHES_AT_ONCE
from tests.servers_postgres import running_postgres
from tests.servers_seaweed import running_seaweed

ROUNDS = 3
ITEMS_MIN = 100_000
PAGES, COMPACTED_PAGES, PAGE_ROWS, PAGE_FINDINGS = 40, 200, 1_000, 10
OBJECTS = {1_000: 4_000, 1_000_000: 200}
READ_GOAL = 0.7
TENANT, POLICY = TenantId(b"t" * 32), PolicyHash(b"p" * 32)
RULE = RuleFingerprint(b"r" * 32)


# Pages


def held_shard(stores: Stores, run: int) -> HeldShard:
    """Begin a run of one shard, and take it."""
    key = RunKey(TENANT, run)
    stores.coordinator.create_run(time.time_ns(), key, 1)
    stores.coordinator.register_shards(time.time_ns(), key, [InitialShard(1, ShardSpec())], 2)
    found = claim(stores.coordinator, key, 1, SystemClock())
    assert isinstance(found, HeldShard)
    return found


def write_pages(stores: Stores, shard: HeldShard, count: int) -> float:
    """Commit pages, and return how many a second."""
    builder = PageBuilder(shard.context(POLICY))
    seconds = 0.0
    for number in range(count):
        for at in range(PAGE_ROWS):
            item = Item(StableItemId(os.urandom(32)), ObjectVersionId(os.urandom(32)))
            found = [FoundSecret(RULE, SecretHash(os.urandom(32)), 10, 20, None)] if at < PAGE_FINDINGS else []
            builder.add(item, Scanned(200, found, Gaps(0, 0, 0)))
        page = builder.page(Boundary(BoundaryKind.ORDERED_CONTENT, Cursor(b"%08d" % number)))
        begin = time.perf_counter()
        commit_page(page, stores.findings, stores.ledger, shard)
        seconds += time.perf_counter() - begin
        shard.renew()
    assert stores.ledger.batch_get(TENANT, POLICY, [row.ovid for row in page.items]) == list(page.items)
    return count / seconds


def commit_rows() -> Iterator[Row]:
    """Yield page commits a second beside PostgreSQL."""
    runs = itertools.count(1)
    with ExitStack() as stack:
        folder, server = stack.enter_context(scratch()), stack.enter_context(running_postgres(fsync="on"))
        (folder / "lake").mkdir()
        lake, database = f"file://{folder.absolute()}/lake", server.address("postgres")
        opened = [stack.enter_context(open_stores(address, migrate=True)) for address in (lake, database)]
        sides = [partial(_in_a_new_run, stores, runs) for stores in opened]
        mine, peer = medians(ROUNDS, sides)
    yield compare(f"pages of {PAGE_ROWS:,} items committed, local store", mine, "PostgreSQL", peer, "pages/s")


def _in_a_new_run(stores: Stores, runs: Iterator[int]) -> float:
    return write_pages(stores, held_shard(stores, next(runs)), PAGES)


def compaction_rows() -> Iterator[Row]:
    """Yield the speed of a compaction beside plain Parquet."""
    ours, peer = [], []
    for _ in range(ROUNDS):
        with scratch() as folder:
            (folder / "lake").mkdir()
            address = f"file://{folder.absolute()}/lake"
            with open_stores(address, migrate=True) as stores:
                write_pages(stores, held_shard(stores, 1), COMPACTED_PAGES)
            pages = sorted((folder / "lake" / "pages" / "ledger").rglob("*.parquet"))
            pages += sorted((folder / "lake" / "pages" / "findings").rglob("*.parquet"))
            megabytes = sum(page.stat().st_size for page in pages) / 1e6
            begin = time.perf_counter()
            rows = plain_fold(pages, folder)
            peer.append(megabytes / (time.perf_counter() - begin))
            begin = time.perf_counter()
            with LakeDatabase(address) as lake:
                done = Compaction(lake).run()
            ours.append(megabytes / (time.perf_counter() - begin))
            assert done.pages == len(pages)
            assert done.rows["ledger"] == rows == COMPACTED_PAGES * PAGE_ROWS
    middle = ROUNDS // 2
    name = f"compaction of {2 * COMPACTED_PAGES} pages"
    yield compare(name, sorted(ours)[middle], "read, sort, write one file", sorted(peer)[middle], "MB/s")


def plain_fold(pages: list[Path], folder: Path) -> int:
    """Read pages, sort them and write a file for each kind; return the number of rows of the ledger."""
    rows = 0
    for kind, key in (("ledger", "ovid"), ("findings", "finding_id")):
        table = pa.concat_tables([pq.read_table(page) for page in pages if f"/{kind}/" in str(page)])
        pq.write_table(table.sort_by(key), folder / f"{kind}.parquet", compression="zstd")
        rows += len(table) if kind == "ledger" else 0
    return rows


# Objects


def read_rows() -> Iterator[Row]:
    """Yield objects and bytes a second read from SeaweedFS beside obstore alone."""
    with running_seaweed() as server:
        os.environ.update(server.environ)
        for size, count in OBJECTS.items():
            address = f"s3://lake/objects-{size}"
            bodies = {f"{number:06}": os.urandom(size) for number in range(count)}
            with closing(open_objects(address)) as store, ThreadPoolExecutor(8) as pool:
                list(pool.map(store.put, bodies, bodies.values()))
            sides = [partial(read_ours, address, bodies), partial(read_alone, server.endpoint, bodies)]
            mine, peer = medians(ROUNDS, sides)
            yield compare(
                f"objects of {size:,} bytes read from SeaweedFS",
                count / mine,
                "obstore alone",
                count / peer,
                "objects/s",
                goal=READ_GOAL,
            )
            megabytes = size * count / 1e6
            yield compare(
                "the same, bytes", megabytes / mine, "obstore alone", megabytes / peer, "MB/s", goal=READ_GOAL
            )


def read_ours(address: str, bodies: dict[str, bytes]) -> float:
    """Read all objects as a worker of a scan does; return the seconds."""
    source = ObjectSource.at(address)
    listed = [locator for batch in source.list_items(lambda _: None) for locator in batch.column("locator").to_pylist()]
    assert len(listed) == len(bodies)
    begin = time.perf_counter()
    with source.open() as reader:
        for at in range(0, len(listed), 1_000):
            page = listed[at : at + 1_000]
            size = len(next(iter(bodies.values())))
            reader.expect([(locator, size) for locator in page])  # type: ignore[attr-defined]
            for locator in page:
                (part,) = reader.read(locator, None).parts
                assert part.data == bodies[locator.decode()[-6:]]
    return time.perf_counter() - begin


def read_alone(endpoint: str, bodies: dict[str, bytes]) -> float:
    """Read all objects by obstore alone, with as many threads; return the seconds."""
    size = len(next(iter(bodies.values())))
    store = S3Store("lake", prefix=f"objects-{size}", endpoint=endpoint, client_options={"allow_http": True})
    begin = time.perf_counter()
    with ThreadPoolExecutor(FETCHES_AT_ONCE) as pool:
        for key, body in zip(bodies, pool.map(lambda key: obstore.get(store, key).bytes(), bodies), strict=True):
            assert body == bodies[key]
    return time.perf_counter() - begin


def main() -> None:
    """Run all, and write the table."""
    most = sized("ITEMS", 1_000_000)
    sizes = [ITEMS_MIN]
    while sizes[-1] * 10 <= most:
        sizes.append(sizes[-1] * 10)
    rows = [*commit_rows(), *compaction_rows(), *read_rows(), *scan_rows(sizes)]
    report("lake", rows)


if __name__ == "__main__":
    main()
