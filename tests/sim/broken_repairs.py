"""Decisions of a repair, each broken in one way."""

from strandline.protocol.repairs import Held, KeyRepair, RepairStep


def always(*_: object, **__: object) -> bool:
    return True


def no_drain(*, undrained: bool, unflushed: bool, undiffed: bool, uncommitted: bool) -> RepairStep:
    if unflushed:
        return RepairStep.FLUSH
    return no_flush(undrained=undrained, unflushed=unflushed, undiffed=undiffed, uncommitted=uncommitted)


def no_flush(*, undrained: bool, unflushed: bool, undiffed: bool, uncommitted: bool) -> RepairStep:
    _ = undrained, unflushed
    if undiffed:
        return RepairStep.DIFF
    return RepairStep.COMMIT if uncommitted else RepairStep.RESUME


def no_ack_barrier(*, undrained: bool, unflushed: bool, undiffed: bool, uncommitted: bool) -> RepairStep:
    _ = undiffed, uncommitted
    return RepairStep.DRAIN if undrained else RepairStep.FLUSH if unflushed else RepairStep.RESUME


def cursor_first(*, undrained: bool, unflushed: bool, undiffed: bool, uncommitted: bool) -> RepairStep:
    if undrained or unflushed:
        return RepairStep.DRAIN if undrained else RepairStep.FLUSH
    return RepairStep.COMMIT if uncommitted else RepairStep.DIFF if undiffed else RepairStep.RESUME


def delete_nothing(local: Held | None, artifact: Held | None, *, identical: bool, listed: bool) -> KeyRepair:
    _ = local, identical, listed
    return KeyRepair.TAKE if artifact else KeyRepair.KEEP
