"""`strandline pipeline compact`: fold the pages of a lake into Delta tables."""

import time
from typing import Annotated

import typer

from strandline.cli.output import AsJson, to_json
from strandline.cli.pipeline_address import Address, database_at
from strandline.errors import InvalidInput
from strandline.pipeline.stores import require_current

DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would be folded; change nothing.")]
Grace = Annotated[
    float, typer.Option("--grace-h", metavar="HOURS", help="Hours for which folded pages are kept.", show_default=True)
]


def compact(address: Address, grace_h: Grace = 24.0, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Fold the pages of a lake into Delta tables, and delete pages that were folded before the grace period.

    Scans and reports may run meanwhile; a compaction that was interrupted continues with the same command.
    """
    from strandline.pipeline.lake.compaction import Compacted, Compaction  # noqa: PLC0415 - only this command needs it

    began = time.perf_counter()
    with database_at(address) as database:
        if database.dialect != "objects":
            raise InvalidInput(
                "only a lake is compacted, and this is a database",
                hint="give the address of a lake, such as s3://bucket/prefix",
            )
        require_current(database)
        compaction = Compaction(database, grace_s=grace_h * 3_600)
        if dry_run:
            plan = compaction.plan()
            done = Compacted(plan.count, plan.bytes)
        else:
            done = compaction.run()
    seconds = time.perf_counter() - began
    if as_json:
        print(to_json({"address": database.describe(), "applied": not dry_run, **vars(done), "seconds": seconds}))
        return
    verb = "would fold" if dry_run else "folded"
    print(f"{database.describe()}: {verb} {done.pages:,} pages of {done.bytes / 1e6:,.1f} MB in {seconds:.2f} s")
    for table, rows in done.rows.items():
        print(f"{table}: {rows:,} rows, version {done.versions[table]}")
    if done.deleted:
        print(f"deleted {done.deleted:,} objects that were folded or replaced before")
