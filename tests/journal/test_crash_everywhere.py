"""The power goes, or an operation fails, at every single change of the disk that a workload makes."""

import errno
from collections.abc import Callable
from random import Random

import pytest

from strandline.journal import SYNCED, WRITTEN, JournalConfig
from strandline.journal.config import KiB
from tests.effort import Part, parts
from tests.journal.helpers import telling
from tests.journal.model import CHANGES, JournalWithModel, fault_at

TINY = JournalConfig(segment_bytes_max=KiB, reserve_bytes_max=0)
RESERVING = JournalConfig(segment_bytes_max=KiB, reserve_bytes_max=700)
FORGETTING = JournalConfig(segment_bytes_max=KiB, reserve_bytes_max=0, retain_bytes=2000)
CONFIGS = pytest.mark.parametrize("config", [TINY, RESERVING, FORGETTING], ids=["tiny", "reserving", "forgetting"])

OPENING_CHANGES_MAX = 12
"""About how often the disk changes while a journal is opened."""

ALL = Part(0, 1)

Step = Callable[[JournalWithModel], object]

WORKLOAD: list[Step] = [
    lambda world: world.append([10]),
    lambda world: world.append([300, 200], durability=WRITTEN),
    lambda world: world.append([10, 20, 30], shape=7, durability=WRITTEN),
    lambda world: world.append([100], shape=1),
    lambda world: world.append([400, 10], durability=WRITTEN),
    lambda world: world.sync(),
    lambda world: world.append([900], durability=WRITTEN),
    lambda world: world.append([900]),
    lambda world: world.remove_below(len(world.expected.records) - 1),
    lambda world: world.append([1200]),
    lambda world: world.append([0], durability=WRITTEN),
    lambda world: world.close() and world.open(),
    lambda world: world.append([500, 300]),
    lambda world: world.append([200], shape=3, durability=WRITTEN),
]
"""Appends of both kinds, one and several, large and small; rolls, checkpoints, retention, a clean shutdown."""


def run(world: JournalWithModel, workload: list[Step]) -> None:
    """Do one step after another, until one fails so that nothing more can be done."""
    for step in workload:
        if world.journal is None:
            return
        step(world)


def changes_of(config: JournalConfig) -> int:
    """Return how many changes of the disk the workload makes."""
    world = JournalWithModel(config)
    assert world.open()
    run(world, WORKLOAD)
    assert len(world.expected.records) > 10
    return world.cut.seen


def cut_power_everywhere(config: JournalConfig, seeds: range) -> None:
    """Let the power go at every change of the disk, with several fates of what was not synced."""
    for changes in range(changes_of(config) + 1):
        for seed in seeds:
            with telling(changes=changes, seed=seed):
                random = Random(f"{changes}/{seed}")
                world = JournalWithModel(config)
                world.cut.left = changes
                if world.open():
                    run(world, WORKLOAD)
                world.crash(random)
                world.reopen()
                world.check_certain(random)


def fail_everywhere(config: JournalConfig, code: int, *, crashes: bool, seeds: range, part: Part = ALL) -> None:
    """Let every change of the disk fail; then open again, go on, and lose power."""
    for countdown in part.of(range(1, changes_of(config) + 1)):
        for seed in seeds:
            with telling(countdown=countdown, seed=seed):
                random = Random(f"{countdown}/{seed}")
                world = JournalWithModel(config)
                world.disk.fault = fault_at(countdown, CHANGES, code)
                if world.open():
                    run(world, WORKLOAD)
                if crashes:
                    world.crash(random)
                else:
                    world.kill()
                world.reopen()
                assert world.append([10])
                assert world.append([10], durability=WRITTEN)
                assert world.append([700, 300])
                world.crash(random)
                world.reopen()


def cut_power_while_opening(config: JournalConfig, seeds: range) -> None:
    """Kill the process at every change of the disk; let the power go at any change while the next one opens."""
    for changes in range(changes_of(config) + 1):
        for seed in seeds:
            with telling(changes=changes, seed=seed):
                random = Random(f"{changes}/{seed}")
                world = JournalWithModel(config, later=seed % 2 == 0)
                world.cut.left = changes
                if world.open():
                    run(world, WORKLOAD)
                world.kill()
                world.cut.left = random.randrange(OPENING_CHANGES_MAX)
                world.open()
                world.crash(random)
                world.reopen()
                world.check_certain(random)


@CONFIGS
def test_the_power_may_go_at_any_change_of_the_disk(config: JournalConfig) -> None:
    cut_power_everywhere(config, range(1))


@CONFIGS
def test_the_power_may_go_while_what_a_killed_process_left_is_opened(config: JournalConfig) -> None:
    cut_power_while_opening(config, range(1))


@CONFIGS
@pytest.mark.parametrize(("code", "crashes"), [(errno.EIO, False), (errno.ENOSPC, False), (errno.EIO, True)])
@parts(6)
def test_any_change_of_the_disk_may_fail(config: JournalConfig, code: int, crashes: bool, part: Part) -> None:
    fail_everywhere(config, code, crashes=crashes, seeds=range(1), part=part)


@pytest.mark.long
@pytest.mark.timeout(1800)
@CONFIGS
@pytest.mark.parametrize("few", range(6))
def test_many_more_fates(config: JournalConfig, few: int) -> None:
    seeds = range(2 * few, 2 * few + 2)
    cut_power_everywhere(config, seeds)
    cut_power_while_opening(config, seeds)
    for code in (errno.EIO, errno.ENOSPC, errno.EDQUOT):
        for crashes in (False, True):
            fail_everywhere(config, code, crashes=crashes, seeds=seeds)


def walk(seed: int, steps: int = 30) -> None:
    """Do random things to a random journal."""
    random = Random(seed)
    config = JournalConfig(
        segment_bytes_max=KiB,
        reserve_bytes_max=random.choice([0, 0, 700, 65536]),
        retain_bytes=random.choice([None, None, 0, 2500]),
        segment_age_max_s=random.choice([None, 10.0]),
    )
    world = JournalWithModel(config, later=random.random() < 0.5)
    world.reopen()
    for _ in range(steps):
        random.choice(MOVES)(world, random)


def _sizes(random: Random) -> list[int]:
    return [random.choice([0, 1, 30, 200, 400, 1100]) for _ in range(random.randint(1, 4))]


def _append(world: JournalWithModel, random: Random) -> None:
    world.append(_sizes(random), random.choice([0, 0, 1, 3, 4, 7]), random.choice([SYNCED, SYNCED, WRITTEN]))


def _append_later(world: JournalWithModel, random: Random) -> None:
    if world.later is None:
        return
    for _ in range(random.randint(1, 5)):
        world.append_later(_sizes(random), random.choice([0, 0, 1, 7]), random.choice([SYNCED, WRITTEN]))


def _run_some(world: JournalWithModel, random: Random) -> None:
    world.run_later(random.choice([None, 1, 2]))


def _sync(world: JournalWithModel, _: Random) -> None:
    world.sync()


def _remove(world: JournalWithModel, random: Random) -> None:
    world.remove_below(max(0, len(world.expected.records) - random.randint(0, 12)))


def _fault(world: JournalWithModel, random: Random) -> None:
    names = random.choice([CHANGES, frozenset({random.choice(sorted(CHANGES))})])
    world.disk.fault = fault_at(random.randint(1, 25), names, random.choice([errno.EIO, errno.ENOSPC]))


def _cut(world: JournalWithModel, random: Random) -> None:
    world.cut.left = random.randint(0, 25)


def _time(world: JournalWithModel, _: Random) -> None:
    world.clock.advance(20)


def _close(world: JournalWithModel, _: Random) -> None:
    world.close()
    world.kill()
    world.reopen()


def _kill(world: JournalWithModel, _: Random) -> None:
    world.kill()
    world.reopen()


def _crash(world: JournalWithModel, random: Random) -> None:
    world.crash(random)
    world.reopen()


def _crash_while_opening(world: JournalWithModel, random: Random) -> None:
    world.crash(random)
    world.cut.left = random.randint(0, 25)
    world.open()
    world.crash(random)
    world.reopen()


def _crash_while_opening_after_a_kill(world: JournalWithModel, random: Random) -> None:
    world.kill()
    world.cut.left = random.randint(0, 25)
    world.open()
    world.crash(random)
    world.reopen()


def _crash_twice(world: JournalWithModel, random: Random) -> None:
    world.crash(random)
    world.reopen()
    world.check_certain(random)


MOVES = [_append] * 6 + [_append_later] * 4 + [_run_some, _run_some, _sync, _remove, _fault, _cut, _time]
MOVES += [_close, _kill, _crash, _crash_while_opening, _crash_while_opening_after_a_kill, _crash_twice]


@parts(6)
def test_a_random_walk_with_crashes_loses_nothing(part: Part) -> None:
    for seed in part.of(range(600)):
        with telling(seed=seed):
            walk(seed)


@pytest.mark.long
@pytest.mark.parametrize("thousand", range(1, 9))
def test_many_random_walks_with_crashes_lose_nothing(thousand: int) -> None:
    for seed in range(1000 * thousand, 1000 * (thousand + 1)):
        with telling(seed=seed):
            walk(seed, 60)
