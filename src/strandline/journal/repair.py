"""Repair: a plan that can be read first, steps that are safe to run twice, and a check at the end.

`plan_repair` reads everything and changes nothing. `apply_repair` takes the writer's lock, makes sure that the folder
is still the one that was looked at, and runs the steps. The last step reads everything again; it records the result
only if nothing is damaged any more.

Invariants: every whole record keeps its offset and stays readable; an offset that was durable is readable or lost, and
never given out again (`OffsetsLost` tells readers); bytes that are changed are in `quarantine/` first. A repair that
was interrupted is finished by making a new plan and applying it.

What it does not do: it never guesses at the content of damaged bytes, and it leaves a file alone that is not
recognisably a segment of this journal (`FormatError`).
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from strandline.errors import Conflict
from strandline.files import Disk, storage_errors
from strandline.journal.examination import Progress
from strandline.journal.folder import lock_folder
from strandline.journal.repair_plan import Planner, RepairPlan, fingerprint
from strandline.journal.repair_steps import Step, WriteCheckpoint


@dataclass(frozen=True, slots=True)
class Repaired:
    """What a repair did: the plan's steps, and where the bytes are that it changed."""

    plan: RepairPlan
    kept: tuple[Path, ...]


def plan_repair(disk: Disk, folder: Path, progress: Progress | None = None) -> RepairPlan:
    """Read the whole journal and return what would make it whole; no steps where it is. Nothing is changed."""
    with storage_errors(folder):
        seen = fingerprint(disk, folder)
        return Planner(disk, folder, progress).plan(seen)


def apply_repair(
    disk: Disk,
    folder: Path,
    plan: RepairPlan,
    *,
    on_step: Callable[[Step], None] | None = None,
    progress: Progress | None = None,
) -> Repaired:
    """Run a plan under the writer's lock; `Conflict` where the folder is not the one that was planned for.

    `on_step` hears of each step before it runs, `progress` of the check at the end. `Damaged` if that finds anything.
    """
    if not plan.steps:
        return Repaired(plan, ())
    kept: list[Path] = []
    with ExitStack() as held, storage_errors(folder):
        held.callback(lock_folder(disk, folder).release)
        if fingerprint(disk, folder) != plan.seen:
            raise Conflict(f"{folder} has changed since the repair was planned", hint="make a new plan and look at it")
        for step in plan.steps:
            if on_step is not None:
                on_step(step)
            if isinstance(step, WriteCheckpoint):
                kept += step.run(disk, folder, progress)
            else:
                kept += step.run(disk, folder)
    return Repaired(plan, tuple(kept))
