"""`strandline pipeline init`: create the stores."""

from strandline.cli.output import AsJson, emit
from strandline.cli.pipeline_address import DEFAULT_ADDRESS, Address, database_at, schema_record


def init(address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """Create the pipeline's tables; existing tables stay as they are.

    A SQLite file is created with the permissions of its folder. On PostgreSQL the schema `strandline` is created in an
    existing database.
    """
    with database_at(address) as database:
        before = database.status()
        applied = [] if before.applied else database.migrate()
        after = database.status()
    if as_json:
        emit({"address": database.describe(), "created": bool(applied), **schema_record(after)}, as_json=True)
        return
    print(f"{database.describe()}: {'created' if applied else 'exists already'}, schema version {len(after.applied)}")
    if after.pending:
        print("the schema is of an older version: run `strandline pipeline migrate`")
