"""The contract of coordination, second part: cursors, splits, and shards that are put aside."""

from collections.abc import Callable

from strandline.protocol.errors import (
    CheckpointMissingKey,
    CursorKeyTooLarge,
    CursorOutOfBounds,
    CursorRegression,
    CursorTokenTooLarge,
    LeaseExpired,
    ShardNotParked,
    ShardTerminal,
    SplitInvalid,
    StaleFence,
)
from strandline.protocol.shards import (
    KEY_BYTES_MAX,
    METADATA_BYTES_MAX,
    TOKEN_BYTES_MAX,
    Cursor,
    Lease,
    ParkReason,
    ShardKey,
    ShardRecord,
    ShardSpec,
    ShardStatus,
    check_invariants,
)
from strandline.protocol.splits import ResidualPlan
from strandline.testing.contract import expect, refuses, same
from strandline.testing.coordination_helpers import (
    CUT,
    EXPIRED,
    HALVES,
    NOW,
    RUN,
    WHOLE,
    CheckedCoordinator,
    CoordinationCheck,
    begin,
    every_operation,
    parts,
    take,
)


def cursors_move_forward_across_leases(coordinator: CheckedCoordinator) -> None:
    """The next owner goes on where the last one was; the same key may be given again, an earlier one never."""
    (key,) = begin(coordinator, WHOLE)
    first = take(coordinator, key)
    coordinator.checkpoint(NOW, first, Cursor(b"d", b"token"), 10)
    second = coordinator.acquire_and_restore(EXPIRED, key, 2)
    same("the cursor that is restored", second.cursor, Cursor(b"d", b"token"))
    lease = second.lease
    for name, call in (("checkpoint", coordinator.checkpoint), ("complete", coordinator.complete)):
        refuses(f"an earlier key to {name}", CursorRegression, call, EXPIRED, lease, Cursor(b"c\xff"), 11)
    coordinator.checkpoint(EXPIRED, lease, Cursor(b"d", b"another"), 12)
    coordinator.complete(EXPIRED, lease, Cursor(b"d\x00"), 13)
    same("the last cursor", coordinator.get_shard(key).cursor, Cursor(b"d\x00"))


def cursors_stay_in_their_shard(coordinator: CheckedCoordinator) -> None:
    """From its start, which belongs to it, to before its end, which does not; without bounds anywhere."""
    bounded, open_ended = begin(coordinator, WHOLE, ShardSpec())
    lease = take(coordinator, bounded)
    for name, call in (("checkpoint", coordinator.checkpoint), ("complete", coordinator.complete)):
        for key in (b"a\xff", b"y", b"z"):
            refuses(f"a key outside, to {name}", CursorOutOfBounds, call, NOW, lease, Cursor(key), 10)
    coordinator.checkpoint(NOW, lease, Cursor(b"b"), 11)
    coordinator.checkpoint(NOW, lease, Cursor(b"x\xff"), 12)
    lease = take(coordinator, open_ended)
    coordinator.checkpoint(NOW, lease, Cursor(b"\x00"), 13)
    coordinator.complete(NOW, lease, Cursor(b"\xff" * KEY_BYTES_MAX), 14)


def cursors_have_a_key_and_a_size(coordinator: CheckedCoordinator) -> None:
    """The largest key and token pass, one byte more does not, and a token alone is nothing."""
    (key,) = begin(coordinator, ShardSpec())
    lease = take(coordinator, key)
    largest = Cursor(b"k" * KEY_BYTES_MAX, b"t" * TOKEN_BYTES_MAX)
    for name, call in (("checkpoint", coordinator.checkpoint), ("complete", coordinator.complete)):
        refuses(f"no key to {name}", CheckpointMissingKey, call, NOW, lease, Cursor(b"", b"token"), 10)
        large = (NOW, lease, largest._replace(key=largest.key + b"k"), 10)
        refuses(f"a key too large to {name}", CursorKeyTooLarge, call, *large)
        large = (NOW, lease, largest._replace(token=largest.token + b"t"), 10)
        refuses(f"a token too large to {name}", CursorTokenTooLarge, call, *large)
    same("the cursor", coordinator.get_shard(key).cursor, Cursor())
    coordinator.checkpoint(NOW, lease, largest, 11)
    same("the largest cursor", coordinator.get_shard(key).cursor, largest)


def cursor_monotonicity_combined_with_split_residual(coordinator: CheckedCoordinator) -> None:
    """A shard that gave its rest away stays before the cut, and the rest begins with nothing."""
    (key,) = begin(coordinator, WHOLE)
    lease = take(coordinator, key)
    coordinator.checkpoint(NOW, lease, Cursor(b"f", b"token"), 10)
    for cut in (b"c", b"f"):
        plan = ResidualPlan(*parts(b"b", cut, b"y"))
        refuses("a cut at or before the cursor", SplitInvalid, coordinator.split_residual, NOW, lease, plan, 11)
    (rest,) = coordinator.split_residual(NOW, lease, CUT, 12).spawned
    refuses("a key before the cursor", CursorRegression, coordinator.checkpoint, NOW, lease, Cursor(b"e"), 13)
    refuses("a key at the cut", CursorOutOfBounds, coordinator.checkpoint, NOW, lease, Cursor(b"m"), 13)
    coordinator.checkpoint(NOW, lease, Cursor(b"l\xff"), 13)
    taken = coordinator.acquire_and_restore(NOW, key._replace(shard=rest), 2)
    same("the rest", (taken.spec, taken.cursor, taken.lease.fence), (HALVES[1], Cursor(), 1))
    same("what is kept", coordinator.get_shard(key).spec, HALVES[0])


def split_coverage_key_range_partition(coordinator: CheckedCoordinator) -> None:
    """The parts are exactly the shard, in order, and what is scanned stays scanned."""
    (key,) = begin(coordinator, WHOLE)
    lease = take(coordinator, key)
    coordinator.checkpoint(NOW, lease, Cursor(b"h", b"token"), 10)
    before = coordinator.get_shard(key)
    for problem, wrong in _wrong_parts().items():
        refuses(f"parts with {problem}", SplitInvalid, coordinator.split_replace, NOW, lease, wrong, 11)
    for problem, plan in _wrong_plans().items():
        refuses(f"a rest with {problem}", SplitInvalid, coordinator.split_residual, NOW, lease, plan, 11)
    same("the shard after splits that were refused", coordinator.get_shard(key), before)
    wanted = parts(b"b", b"g", b"m", b"y")
    spawned = coordinator.split_replace(NOW, lease, wanted, 12).spawned
    children = [coordinator.get_shard(key._replace(shard=shard)) for shard in spawned]
    same("the parts", tuple(child.spec for child in children), wanted)
    same("their cursors", [child.cursor for child in children], [Cursor(), Cursor(b"h"), Cursor()])
    same("their parents", {child.parent for child in children}, {key.shard})
    parent = coordinator.get_shard(key)
    same("the parent", (parent.status, parent.spawned, parent.spec), (ShardStatus.SPLIT, spawned, WHOLE))
    expect(all(shard < 0 for shard in spawned), "the ids of parts should have their highest bit set")


def _wrong_parts() -> dict[str, tuple[ShardSpec, ...]]:
    return {
        "nothing": (),
        "only one": parts(b"b", b"y"),
        "a gap": (ShardSpec(b"b", b"g"), ShardSpec(b"h", b"y")),
        "an overlap": (ShardSpec(b"b", b"h"), ShardSpec(b"g", b"y")),
        "an earlier start": parts(b"a", b"m", b"y"),
        "a later start": parts(b"c", b"m", b"y"),
        "an earlier end": parts(b"b", b"m", b"x"),
        "no end": (ShardSpec(b"b", b"m"), ShardSpec(b"m")),
        "one of them empty": parts(b"b", b"m", b"m", b"y"),
        "no end in the middle": (ShardSpec(b"b"), ShardSpec(b"", b"y")),
        "another order": (HALVES[1], HALVES[0]),
        "one key too large": parts(b"b", b"m" * (KEY_BYTES_MAX + 1), b"y"),
        "too much metadata": (HALVES[0], HALVES[1]._replace(metadata=b"x" * (METADATA_BYTES_MAX + 1))),
        "too many": parts(b"b", *(b"c%03d" % number for number in range(256)), b"y"),
    }


def _wrong_plans() -> dict[str, ResidualPlan]:
    pairs = {name: wrong for name, wrong in _wrong_parts().items() if len(wrong) == 2}  # noqa: PLR2004 - a pair
    return {name: ResidualPlan(*pair) for name, pair in pairs.items()}


def splits_of_splits_cover_the_whole(coordinator: CheckedCoordinator) -> None:
    """However often shards are split, those that are left to scan are the first one's range, without gap or overlap."""
    (key,) = begin(coordinator, WHOLE)
    lease = take(coordinator, key)
    (rest,) = coordinator.split_residual(NOW, lease, ResidualPlan(*parts(b"b", b"t", b"y")), 10).spawned
    (more,) = coordinator.split_residual(NOW, lease, ResidualPlan(*parts(b"b", b"p", b"t")), 11).spawned
    children = coordinator.split_replace(NOW, lease, parts(b"b", b"e", b"h", b"p"), 12).spawned
    middle = key._replace(shard=children[1])
    coordinator.split_replace(NOW, take(coordinator, middle), parts(b"e", b"f", b"g", b"h"), 13)
    coordinator.split_residual(
        NOW, take(coordinator, key._replace(shard=more)), ResidualPlan(*parts(b"p", b"q", b"t")), 14
    )
    shards = coordinator.list_shards(RUN)
    leaves = sorted(shard.spec for shard in shards if shard.status is not ShardStatus.SPLIT)
    bounds = [bound for spec in leaves for bound in spec[:2]]
    same("the bounds of what is left", bounds[1:-1:2], bounds[2::2])
    same("where it begins and ends", (bounds[0], bounds[-1]), (b"b", b"y"))
    same("the ids of the first shard's parts", coordinator.get_shard(key).spawned, (rest, more, *children))
    same("how many shards there are", len(shards), 10)
    same("how many have an id of their own", len({shard.shard for shard in shards}), 10)


def split_residual_preserved_through_park_unpark(coordinator: CheckedCoordinator) -> None:
    """What a shard gave away stays away, and who repeats the split is told the same."""
    (key,) = begin(coordinator, WHOLE)
    lease = take(coordinator, key)
    split = coordinator.split_residual(NOW, lease, CUT, 10)
    coordinator.park_shard(NOW, lease, ParkReason.OTHER, 11)
    coordinator.unpark_shard(NOW, key, 12)
    again = coordinator.acquire_and_restore(NOW, key, 2)
    same("what is kept", again.spec, HALVES[0])
    same("the split repeated under the new lease", coordinator.split_residual(NOW, again.lease, CUT, 10), split)
    same("the split repeated under the old lease", coordinator.split_residual(NOW, lease, CUT, 10), split)
    same("what was split off", coordinator.get_shard(key).spawned, split.spawned)
    same("how many shards there are", coordinator.progress(RUN).active, 2)


def unpark_lifecycle_fence_and_cursor_preserved(coordinator: CheckedCoordinator) -> None:
    """A parked shard comes back where it was, under a new fence and without a lease."""
    (key,) = begin(coordinator, WHOLE)
    lease = take(coordinator, key)
    coordinator.checkpoint(NOW, lease, Cursor(b"f", b"token"), 10)
    refuses("unparking an active shard", ShardNotParked, coordinator.unpark_shard, NOW, key, 11)
    coordinator.park_shard(NOW, lease, ParkReason.PERMISSION_DENIED, 12)
    parked = coordinator.get_shard(key)
    same("the reason", (parked.status, parked.park_reason), (ShardStatus.PARKED, ParkReason.PERMISSION_DENIED))
    outcome = coordinator.unpark_shard(NOW, key, 13)
    back = coordinator.get_shard(key)
    same("the shard", (back.status, back.park_reason, back.fence, back.owner), (ShardStatus.ACTIVE, None, 2, None))
    same("its cursor", back.cursor, Cursor(b"f", b"token"))
    refuses("the old lease", StaleFence, coordinator.renew, NOW, lease)
    unowned = lease._replace(fence=2)
    refuses("a lease that was never given", LeaseExpired, coordinator.renew, NOW, unowned)
    same("the cursor that is restored", coordinator.acquire_and_restore(NOW, key, 2).cursor, Cursor(b"f", b"token"))
    same("unparking repeated", coordinator.unpark_shard(NOW, key, 13), outcome)
    same("the fence", coordinator.get_shard(key).fence, 3)


def done_and_split_are_for_good(coordinator: CheckedCoordinator) -> None:
    """Nothing brings back a shard that is done or split."""
    for name, operation, key in every_operation(coordinator):
        lease = take(coordinator, key)
        operation(coordinator, NOW, lease, 10)
        if name not in {"complete", "split_replace"}:
            continue
        before = coordinator.get_shard(key)
        refuses(f"acquiring after {name}", ShardTerminal, take, coordinator, key, EXPIRED)
        refuses(f"unparking after {name}", ShardTerminal, coordinator.unpark_shard, NOW, key, 11)
        for call in _calls(coordinator, lease):
            refuses(f"another operation after {name}", ShardTerminal, call)
        same("the shard", coordinator.get_shard(key), before)


def _calls(coordinator: CheckedCoordinator, lease: Lease) -> list[Callable[[], object]]:
    return [
        lambda: coordinator.renew(NOW, lease),
        lambda: coordinator.checkpoint(NOW, lease, Cursor(b"d"), 20),
        lambda: coordinator.complete(NOW, lease, Cursor(b"d"), 21),
        lambda: coordinator.park_shard(NOW, lease, ParkReason.OTHER, 22),
        lambda: coordinator.split_replace(NOW, lease, HALVES, 23),
        lambda: coordinator.split_residual(NOW, lease, CUT, 24),
    ]


def records_keep_their_invariants(coordinator: CheckedCoordinator) -> None:
    """After every operation, every record."""
    for _, operation, key in every_operation(coordinator):
        _check_all(coordinator, key)
        lease = take(coordinator, key)
        _check_all(coordinator, key)
        operation(coordinator, NOW, lease, 10)
        for shard in _check_all(coordinator, key):
            same("a record that is listed", coordinator.get_shard(shard.key), shard)


def _check_all(coordinator: CheckedCoordinator, key: ShardKey) -> list[ShardRecord]:
    return [check_invariants(shard) for shard in coordinator.list_shards(RUN._replace(run=key.run))]


SHARD_CHECKS: tuple[CoordinationCheck, ...] = (
    cursors_move_forward_across_leases,
    cursors_stay_in_their_shard,
    cursors_have_a_key_and_a_size,
    cursor_monotonicity_combined_with_split_residual,
    split_coverage_key_range_partition,
    splits_of_splits_cover_the_whole,
    split_residual_preserved_through_park_unpark,
    unpark_lifecycle_fence_and_cursor_preserved,
    done_and_split_are_for_good,
    records_keep_their_invariants,
)
