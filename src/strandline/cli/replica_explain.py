"""`strandline replica explain`: what a replica uploads, keeps and costs."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from strandline.cli.output import AsJson, emit, emit_rows
from strandline.cli.replica_options import replica_at
from strandline.replica import MaintenancePolicy, RetentionPolicy
from strandline.replica.cost import Prices, Usage, estimate, measure_database, measure_replica
from strandline.replica.pace import UPLOAD_EVERY_S

Where = Annotated[
    str,
    typer.Argument(
        metavar="DATABASE|URL", help="A database that is to be replicated, or a replica.", show_default=False
    ),
]
Rate = Annotated[
    float | None,
    typer.Option("--commits-per-hour", min=0, help="Suppose this rate instead of the present one."),
]
Sample = Annotated[float, typer.Option("--sample", min=0.1, help="Seconds to look at the log of a database.")]
UploadEvery = Annotated[
    float, typer.Option("--upload-every", min=0.001, help="The pace of uploads while commits keep coming, in seconds.")
]
Hours = Annotated[float, typer.Option("--hours", min=0, help="Every moment of so many hours can be restored.")]
Least = Annotated[int, typer.Option("--snapshots-min", min=1, help="Keep so many snapshots, however old.")]
Maintain = Annotated[bool, typer.Option("--maintain/--no-maintain", help="Whether `run` merges and removes files.")]
Write = Annotated[float, typer.Option("--price-write", min=0, help="Dollars for 1000 PUT or LIST requests.")]
Read = Annotated[float, typer.Option("--price-read", min=0, help="Dollars for 1000 GET or HEAD requests.")]
Stored = Annotated[float, typer.Option("--price-gb", min=0, help="Dollars for a gigabyte (10^9 bytes) and month.")]


def explain(  # noqa: PLR0913, PLR0917 - the options of a command
    where: Where,
    commits_per_hour: Rate = None,
    sample_s: Sample = 5.0,
    upload_every: UploadEvery = UPLOAD_EVERY_S,
    hours: Hours = 24.0,
    snapshots_min: Least = 2,
    maintain: Maintain = True,
    price_write: Write = 0.005,
    price_read: Read = 0.0004,
    price_gb: Stored = 0.023,
    as_json: AsJson = False,
) -> None:
    """Estimate what a replica uploads, keeps and costs at the present rate of commits, for each database.

    The default prices are those of Amazon S3 Standard in us-east-1, as of April 2024. Traffic out of the store is not
    in them. Of a replica the last hour is measured, of a database the next seconds.
    """
    usage = _measured(where, sample_s)
    if commits_per_hour is not None:
        usage = usage._replace(commits_per_hour=commits_per_hour)
    policy = MaintenancePolicy(retention=RetentionPolicy(timedelta(hours=hours), snapshots_min))
    prices = Prices(price_write, price_read, price_gb)
    lines = estimate(usage, policy, prices, upload_every_s=upload_every, is_maintained=maintain)
    emit(
        {
            "measured": where,
            "commits_per_hour": round(usage.commits_per_hour, 1),
            "transaction_bytes": round(usage.transaction_bytes),
            "snapshot_bytes": usage.snapshot_bytes,
        },
        as_json=as_json,
    )
    rows = (
        {
            "what": line.what,
            "writes_per_hour": round(line.writes_per_hour, 1),
            "reads_per_hour": round(line.reads_per_hour, 1),
            "uploaded_bytes_per_hour": round(line.uploaded_bytes_per_hour),
            "objects_kept": round(line.objects_kept),
            "bytes_kept": round(line.bytes_kept),
            "monthly_dollars": round(line.monthly_cost, 2),
        }
        for line in lines
    )
    emit_rows(rows, as_json=as_json)


def _measured(where: str, sample_s: float) -> Usage:
    if "://" not in where:
        return measure_database(Path(where), sample_s)
    with replica_at(where) as (_, layout):
        return measure_replica(layout.all_files(), datetime.now(UTC))
