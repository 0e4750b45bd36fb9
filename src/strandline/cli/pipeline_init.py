"""`strandline pipeline init`: make the stores, or leave those alone that are there."""

from strandline.cli.output import AsJson, emit
from strandline.cli.pipeline_address import DEFAULT_ADDRESS, Address, database_at, schema_record


def init(address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """Make the pipeline's tables; where they are already, nothing changes.

    A SQLite file is created with its folder's permissions. On PostgreSQL the schema `strandline` is created in the
    database, which must exist.
    """
    with database_at(address) as database:
        before = database.status()
        applied = [] if before.applied else database.migrate()
        after = database.status()
    if as_json:
        emit({"address": database.describe(), "created": bool(applied), **schema_record(after)}, as_json=True)
        return
    print(f"{database.describe()}: {'made' if applied else 'is there already'}, schema version {len(after.applied)}")
    if after.pending:
        print("an older version made it: bring it up to date with `strandline pipeline migrate`")
