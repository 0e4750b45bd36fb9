"""`strandline journal repair`: show the plan, ask, carry it out, and say where the damaged bytes are."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from strandline.cli.journal_folder import JournalPath, count_places, has_writer, reading, require_journal
from strandline.cli.output import AsJson, emit
from strandline.errors import Damaged, InvalidInput, Locked
from strandline.files import OsDisk
from strandline.journal.repair import Repaired, apply_repair, plan_repair
from strandline.journal.repair_plan import RepairPlan
from strandline.journal.repair_steps import WriteCheckpoint


def repair(
    path: JournalPath,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Carry the plan out without asking.")] = False,
    as_json: AsJson = False,
) -> None:
    """Repair a damaged journal: show the plan, ask, carry it out. No writer may be active.

    Whole records stay at their offsets. Damaged bytes are copied to `quarantine/` before anything is changed, and the
    offsets that stood in them are marked as lost, so that they are never given out again.
    """
    require_journal(path)
    if has_writer(path):
        if not dry_run:
            raise Locked(str(path))
        print("note: a writer is at work; what looks wrong at the end may be a write in progress", file=sys.stderr)
    with reading(path, "reading") as tell:
        plan = plan_repair(OsDisk(), path, tell)
    if not as_json:
        _tell_plan(path, plan)
    done = None
    if plan.steps and not dry_run:
        if not yes:
            _confirm()
        with reading(path, "checking") as tell:
            done = apply_repair(OsDisk(), path, plan, progress=tell)
    if as_json:
        emit(_to_record(path, plan, done), as_json=True)
    elif done is not None:
        _tell_done(path, done)
    if plan.damage and done is None:
        problem = f"{count_places(plan.damage)} damaged; nothing was changed"
        raise Damaged(str(path), problem, safe="copy the folder, then repeat without --dry-run")


def _tell_plan(path: Path, plan: RepairPlan) -> None:
    for damage in plan.damage:
        print(f"damaged: {damage.describe()}")
    if not plan.steps:
        print(f"{path}: there is nothing to repair")
        return
    print("plan:")
    for number, sentence in enumerate(plan.describe(), 1):
        print(f"  {number}. {sentence}")
    lost = sum(end - first for first, end in plan.lost)
    print(f"{lost:,} offsets are lost" if lost else "no record is lost")


def _confirm() -> None:
    if not sys.stdin.isatty():
        hint = "look at the plan with --dry-run, then repeat with --yes"
        raise InvalidInput("a repair changes files, and there is no terminal to ask on", hint=hint)
    if not typer.confirm("carry this out?", err=True):
        print("nothing was changed", file=sys.stderr)
        raise typer.Exit(1)


def _tell_done(path: Path, done: Repaired) -> None:
    for kept in done.kept:
        print(f"kept: {kept}")
    checked = any(isinstance(step, WriteCheckpoint) for step in done.plan.steps)
    print(f"{path}: repaired; everything was read again and is whole" if checked else f"{path}: repaired")


def _to_record(path: Path, plan: RepairPlan, done: Repaired | None) -> dict[str, object]:
    return {
        "path": path,
        "damage": plan.damage,
        "steps": [{"step": type(step).__name__, "does": step.describe()} for step in plan.steps],
        "lost": plan.lost,
        "applied": done is not None,
        "kept": [] if done is None else [str(kept) for kept in done.kept],
    }
