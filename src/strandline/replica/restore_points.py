"""Restore points: which files of a replica bring a database to a transaction or to a time.

Invariants: a plan begins with a whole database, and its files follow one another without a gap. It ends with the
history and no other: the name of a single transaction is free again once it was merged and removed, so that a request
of a former leader that comes late may create a file under it. A single transaction that merged files have too is used
only if the transactions behind it continue it, to the end of one of these.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import NamedTuple, TypeVar

from strandline.objects import ObjectStore
from strandline.replica.errors import LtxDamaged, ReplicaGap, RestorePointMissing
from strandline.replica.layout import LtxFile
from strandline.replica.lineage import find_lineage
from strandline.replica.ltx import HEADER_BYTES, LtxHeader, file_checksum, format_name, parse_header

LOOKS = 32
"""How many headers are read at once."""

Item = TypeVar("Item")
Result = TypeVar("Result")


class Fork(NamedTuple):
    """Why a single transaction is not of the history, and the merged file that has the one that is."""

    problem: str
    merged: LtxFile


def find_plan(
    store: ObjectStore, files: Sequence[LtxFile], *, txid: int | None = None, at: datetime | None = None
) -> list[LtxFile]:
    """Return the files to apply, in order, for the database after transaction `txid`, at a time, or after the last one.

    `RestorePointMissing` where the only file that ends with the transaction is not of the history.
    """
    if at is not None:
        txid = find_transaction(store, files, at)
    plan = plan_restore(files, txid, address=store.address)
    if (fork := find_fork(store, files, plan[-1])) is not None:
        hint = f"ask for a transaction that a merged file ends with, such as {fork.merged.max_txid}"
        raise RestorePointMissing(store.address, fork.problem, hint=hint)
    return plan


def plan_restore(files: Sequence[LtxFile], txid: int | None = None, *, address: str = "the replica") -> list[LtxFile]:
    """Return the files to apply, in order, for the database after transaction `txid`, or after the last one.

    It begins with the latest whole database and goes on with whatever reaches furthest.
    """
    last = max((file.max_txid for file in files), default=0)
    target = last if txid is None else txid
    if 0 < last < target:
        hint = "ask for that one or an earlier one, or wait until more is shipped"
        raise RestorePointMissing(address, f"its last transaction is {last}, and not {target}", hint=hint)
    usable = sorted((file for file in files if file.max_txid <= target), key=lambda file: file.min_txid)
    whole = max((file for file in usable if file.is_whole), key=lambda file: (file.max_txid, file.level), default=None)
    if whole is None:
        hint = (
            "wait until it is written" if not files else "ask for a later transaction; `snapshots` lists what is there"
        )
        raise RestorePointMissing(address, f"there is no whole database up to transaction {target}", hint=hint)
    plan, at, furthest = [whole], 0, whole
    while plan[-1].max_txid < target:
        reached = plan[-1].max_txid
        while at < len(usable) and usable[at].min_txid <= reached + 1:
            furthest = max(furthest, usable[at], key=lambda file: (file.max_txid, file.level))
            at += 1
        if furthest.max_txid <= reached:
            raise ReplicaGap(address, reached, "transactions are missing")
        plan.append(furthest)
    return plan


def find_transaction(store: ObjectStore, files: Sequence[LtxFile], at: datetime) -> int:
    """Return the last transaction, in the order of transactions, that was written at a time or before it.

    Clocks jump, and leaders have clocks of their own, so that times may run backwards in a history. The last one is
    found by looking at the headers from the end, several at once, and not by halving. Late files of a former leader do
    not count: the merged file that ends with the same transaction says when it was written.
    """
    wanted_ms = int(at.timestamp() * 1000)
    ending = dict[int, list[LtxFile]]()
    for file in sorted(files):  # by level
        ending.setdefault(file.max_txid, []).append(file)

    def times_ms(txid: int) -> list[int]:
        return [_header(store, file).timestamp_ms for file in ending[txid][:2]]

    ordered = sorted(ending, reverse=True)
    for first in range(0, len(ordered), LOOKS):
        some = ordered[first : first + LOOKS]
        for txid, times in zip(some, _at_once(times_ms, some), strict=True):
            if min(times) > wanted_ms:
                continue
            own = times if find_fork(store, files, ending[txid][0]) is None else times[1:]
            if own and own[0] <= wanted_ms:
                return txid
    hint = "ask for a later time; `snapshots` lists what is there"
    raise RestorePointMissing(store.address, f"it does not reach back to {at.isoformat()}", hint=hint)


def _at_once(read: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Return what was read for each of a few items, in order; an error is raised where it is reached."""
    with ThreadPoolExecutor(LOOKS, "strandline-restore") as pool:
        return pool.map(read, items)


def _header(store: ObjectStore, file: LtxFile) -> LtxHeader:
    found = store.get(file.key, stop=HEADER_BYTES)
    if found is None:
        raise LtxDamaged(file.key, "it went away while the replica was read")
    return parse_header(found.body, file.key)


def find_fork(store: ObjectStore, files: Sequence[LtxFile], single: LtxFile) -> Fork | None:
    """Return why a file of level 0 is not of the history that merged files have; None where it is.

    Transactions are removed in order, so that those behind one of the history are there up to the end of the merged
    file. A whole database behind it names no predecessor, and proves nothing. Replicas of litestream's have one leader,
    and name no predecessors at all.
    """
    merged = [file for file in files if file.level and file.min_txid <= single.max_txid <= file.max_txid]
    if single.level or not merged:
        return None
    nearest = min(merged, key=lambda file: file.max_txid)
    problem = _break_between(store, files, single, nearest)
    if problem is None or find_lineage(store) is None:
        return None
    late = f"{single.key} cannot be distinguished from one that a former leader wrote late"
    return Fork(f"{late}: {nearest.key} has that transaction, and {problem}", nearest)


def _break_between(store: ObjectStore, files: Sequence[LtxFile], single: LtxFile, merged: LtxFile) -> str | None:
    """Return where the chain from a single transaction to the end of a merged file breaks; None where it does not."""
    listed = {file.max_txid: file for file in files if file.level == 0}
    folder = single.key.removesuffix(format_name(single.min_txid, single.max_txid))

    def read(txid: int) -> tuple[LtxHeader, int] | None:
        key = f"{folder}{format_name(txid, txid)}"
        known = listed.get(txid) or store.head(key)  # it may have come after the listing
        return None if known is None else _read_ends(store, key, known.size)

    end: int | None = None
    for first in range(single.max_txid, merged.max_txid + 1, LOOKS):
        txids = range(first, min(first + LOOKS, merged.max_txid + 1))
        for txid, found in zip(txids, _at_once(read, txids), strict=True):
            if found is None:
                return f"transaction {txid} is not beside it"
            header, checksum = found
            if end is not None and header.predecessor != end:
                return f"transaction {txid} " + (
                    "follows another file" if header.predecessor else "names none before it"
                )
            end = header.end_checksum(checksum)
    named = _header(store, merged).end
    return None if named in (0, end) else "it ends with another file"


def _read_ends(store: ObjectStore, key: str, size: int) -> tuple[LtxHeader, int]:
    """Return the header and the checksum of a file."""
    head, tail = store.get(key, stop=HEADER_BYTES), store.get(key, start=max(0, size - 8))
    if head is None or tail is None:
        raise LtxDamaged(key, "it went away while the replica was read")
    return parse_header(head.body, key), file_checksum(tail.body)
