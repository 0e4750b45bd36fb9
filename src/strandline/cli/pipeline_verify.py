"""`strandline pipeline verify`: check every stored row."""

import time

from strandline.cli.output import AsJson, progress, to_json
from strandline.cli.pipeline_address import DEFAULT_ADDRESS, Address, database_at
from strandline.errors import Damaged
from strandline.pipeline.overview import count_rows
from strandline.pipeline.stores import require_current
from strandline.pipeline.verify import Verified
from strandline.pipeline.verify import verify as verify_database


def verify(address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """Check every row, derive every id again, and report missing findings; exit code 3 for damage.

    Nothing is changed; workers may run meanwhile.
    """
    began = time.perf_counter()
    with database_at(address) as database:
        require_current(database)
        with progress("checking", sum(count_rows(database).values())) as advance:
            found = verify_database(database, advance)
    seconds = time.perf_counter() - began
    if as_json:
        problems = [problem._asdict() for problem in found.problems]
        record = {"address": database.describe(), "whole": not problems, "rows": found.rows}
        print(to_json({**record, "problems": problems, "seconds": round(seconds, 6)}))
    else:
        _tell(database.describe(), found, seconds)
    if found.problems:
        count = len(found.problems)
        wrong = "a promise is broken" if count == 1 else f"{count} promises are broken"
        raise Damaged(database.describe(), wrong, safe="stop the workers and restore a backup, or ask for help")


def _tell(where: str, found: Verified, seconds: float) -> None:
    print(f"{where}: checked {sum(found.rows.values()):,} rows in {seconds:.2f} s")
    for table, problem, rows in found.problems:
        print(f"damaged: {table}: {rows:,} with {problem}" if rows > 1 else f"damaged: {table}: {problem}")
    if not found.problems:
        print("whole")
