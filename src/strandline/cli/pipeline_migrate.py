"""`strandline pipeline migrate`: migrate the schema."""

from typing import Annotated

import typer

from strandline.cli.output import AsJson, emit
from strandline.cli.pipeline_address import DEFAULT_ADDRESS, Address, database_at, migration_name, schema_record
from strandline.errors import FormatError

DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the pending migrations; change nothing.")]


def migrate(address: Address = DEFAULT_ADDRESS, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Migrate the schema to this version, in one transaction.

    Several processes may migrate at once. A migration cannot be undone: make a backup first. Workers of an older
    version refuse the new schema.
    """
    with database_at(address) as database:
        before = database.status()
        if not before.applied:
            raise FormatError(database.describe(), "holds no pipeline", hint="run `strandline pipeline init`")
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
