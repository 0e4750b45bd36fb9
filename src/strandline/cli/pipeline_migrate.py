"""`strandline pipeline migrate`: bring the tables up to date."""

from typing import Annotated

import typer

from strandline.cli.output import AsJson, emit
from strandline.cli.pipeline_address import DEFAULT_ADDRESS, Address, database_at, migration_name, schema_record
from strandline.errors import FormatError

DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be applied, and change nothing.")]


def migrate(address: Address = DEFAULT_ADDRESS, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Apply what this version adds to the schema, in one transaction; any number of processes may try at once.

    There is no way back: make a backup first. Workers of an older version refuse the new schema.
    """
    with database_at(address) as database:
        before = database.status()
        if not before.applied:
            raise FormatError(database.describe(), "holds no pipeline", hint="make one with `strandline pipeline init`")
        applied = before.pending if dry_run else database.migrate()
        after = database.status()
    names = [migration_name(migration) for migration in applied]
    if as_json:
        record = {"address": database.describe(), "dry_run": dry_run, "applied": [] if dry_run else names}
        emit({**record, **schema_record(after)}, as_json=True)
        return
    for name in names:
        print(f"{'would apply' if dry_run else 'applied'} {name}")
    if not names:
        print(f"{database.describe()}: up to date, schema version {len(after.applied)}")
