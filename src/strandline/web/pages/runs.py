"""Runs: how far each scan is, and its shards as a map; a parked shard can be made active again."""

import time

from strandline.extras import needs
from strandline.protocol.errors import shown
from strandline.protocol.runs import RunStatus
from strandline.protocol.shards import ShardRecord, ShardStatus
from strandline.scan.run.totals import parse_totals
from strandline.web.charts import Cell
from strandline.web.parts.scans import RunFacts, ScanPart
from strandline.web.requests import NotFound, back, form_of, page, site_of

with needs("web"):
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import Request
    from starlette.responses import Response


def listed(request: Request) -> Response:
    """List the runs."""
    scans = site_of(request).parts.scans
    facts = scans.value if scans is not None else None
    return page(request, "runs.html", scans=scans, facts=facts, left=left_s, shown=shown, live="scans")


def detail(request: Request) -> Response:
    """Show the shards of a run as a map."""
    scans, run = _run(request)
    shards = scans.shards(run.run)
    now = time.time_ns()
    cells = [_cell(shard, now) for shard in shards]
    parked = [shard for shard in shards if shard.status == ShardStatus.PARKED]
    leased = [shard for shard in shards if shard.leased(now)]
    return page(
        request,
        "run.html",
        scans=scans,
        run=run,
        cells=cells,
        parked=parked,
        leased=leased,
        totals=parse_totals,
        left=left_s(scans, run),
        rates=scans.rates(run.run),
        history=scans.history(run.run),
        shown=shown,
        now=now,
        can_unpark=run.status == RunStatus.ACTIVE,
        live="scans",
    )


async def unpark(request: Request) -> Response:
    """Make parked shards active again."""
    form = await form_of(request)
    scans, run = _run(request)
    for text in form.get("shard", []):
        await run_in_threadpool(scans.unpark, run.run, _number(text))
    site_of(request).live.changed("scans")
    return back(request, form, f"/runs/{run.run}")


def left_s(scans: ScanPart, run: RunFacts) -> float | None:
    """Return the seconds that a run will take at its rate of late; None where that is unknown."""
    rate, _ = scans.rates(run.run)
    if run.items_todo is None or not rate or run.status != RunStatus.ACTIVE:
        return None
    return max(0, run.items_todo - run.totals.items) / rate


def _run(request: Request) -> tuple[ScanPart, RunFacts]:
    scans = site_of(request).parts.scans
    number = _number(request.path_params["run"])
    facts = scans.value if scans is not None else None
    found = next((run for run in facts.runs if run.run == number), None) if facts is not None else None
    if scans is None or found is None:
        raise NotFound(f"there is no run {number}", hint="the list of runs has those that are known")
    return scans, found


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise NotFound(f"{text[:40]!r} is not a number") from None


def _cell(shard: ShardRecord, now: int) -> Cell:
    match shard.status:
        case ShardStatus.ACTIVE:
            kind = "leased" if shard.leased(now) else "waiting"
        case ShardStatus.DONE | ShardStatus.SPLIT | ShardStatus.PARKED:
            kind = shard.status.name.lower()
    items = parse_totals(shard.cursor.token).items
    return Cell(kind, f"shard {shown(shard.shard)}: {kind}, {items:,} items")
