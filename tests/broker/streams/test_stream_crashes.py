"""The power goes, or an operation fails, at every single change of the disk that a fixed workload makes."""

import errno
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random

import pytest

from tests.broker.streams.helpers import SECOND, make
from tests.broker.streams.world import StreamModel, everything_small, headers
from tests.journal.helpers import telling
from tests.journal.model import CHANGES, fault_at

CONFIGS = {
    "plain": {},
    "bucket": {"max_msgs_per_subject": 1},
    "history": {"max_msgs_per_subject": 2, "max_msgs": 9},
    "expiring": {"allow_msg_ttl": True, "max_msgs_per_subject": 1, "subject_delete_marker_ttl": 2 * SECOND},
}
BY_CONFIG = pytest.mark.parametrize("name", CONFIGS)
Step = Callable[[StreamModel], object]


def _overwrite(world: StreamModel) -> None:
    for _ in range(6):
        world.publish([(b"s.a", b"", b"v" * 90), (b"s.b", b"", b"w" * 90)])


def _with_ttl(world: StreamModel) -> None:
    ttl = headers(TTL="1s") if world.model.config.allow_msg_ttl else b""
    world.publish([(b"s.t", ttl, b"t"), (b"s.u", headers(Msg_Id="one"), b"u")])


def _reopen(world: StreamModel) -> None:
    if world.close():
        world.open()


WORKLOAD: list[Step] = [
    lambda world: world.publish([(b"s.keep", b"", b"k" * 120), (b"s.a", headers(Msg_Id="gone soon"), b"a")]),
    _overwrite,
    _with_ttl,
    lambda world: world.publish([(b"s.c", headers(Expected_Last_Subject_Sequence=0), b"c")] * 2),
    lambda world: world.remove([2, 5]),
    lambda world: world.compact(),
    lambda world: world.clock.advance(1.5),
    _overwrite,
    lambda world: world.compact(),
    lambda world: world.update(replace(world.model.config, description="other")),
    lambda world: world.purge("s.b"),
    _overwrite,
    lambda world: world.snapshot(),
    lambda world: world.publish([(b"s.a", headers(Rollup="sub"), b"r"), (b"s.u", headers(Msg_Id="one"), b"again")]),
    lambda world: world.compact(),
    _reopen,
    lambda world: world.expire(),
    lambda world: world.purge(below=world.model.last_seq + 3),
    lambda world: world.publish([(b"s.end", b"", b"e")]),
]
"""Publishes of all kinds, deletes, purges, a new configuration, times to live, compactions, a snapshot, a restart."""


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    with everything_small():
        yield


def run(world: StreamModel) -> None:
    """Do one step after another; once the stream is gone, the rest does nothing."""
    for step in WORKLOAD:
        step(world)


def changes_of(name: str) -> int:
    """Return how many changes of the disk the workload makes."""
    world = StreamModel(make(**CONFIGS[name]))
    assert world.create()
    run(world)
    world.check()
    return world.cut.seen


def cut_power_everywhere(name: str, seeds: range, stride: int) -> None:
    for changes in range(0, changes_of(name) + 1, stride):
        for seed in seeds:
            with telling(changes=changes, seed=seed):
                random = Random(f"{changes}/{seed}")
                world = StreamModel(make(**CONFIGS[name]))
                world.cut.left = changes
                if world.create():
                    run(world)
                world.crash(random)
                world.recover()
                world.check()
                if world.stream is not None:
                    world.publish([(b"s.after", b"", b"a")])
                    world.compact()
                    world.check()


def test_the_workload_compacts(tmp_path: object) -> None:
    del tmp_path
    world = StreamModel(make(max_msgs_per_subject=1))
    assert world.create()
    run(world)
    assert world.stream is not None
    assert world.stream._log.first_place > 0  # noqa: SLF001 - that the front was let go shows nowhere else


@BY_CONFIG
def test_nothing_acknowledged_is_lost_when_the_power_goes_at_any_change_of_the_disk(name: str) -> None:
    cut_power_everywhere(name, range(1), stride=31)


@pytest.mark.long
@BY_CONFIG
def test_the_same_at_every_change_and_with_several_fates(name: str) -> None:
    cut_power_everywhere(name, range(2), stride=1)


def fail_everywhere(name: str, stride: int) -> None:
    for countdown in range(1, changes_of(name) + 1, stride):
        with telling(countdown=countdown):
            random = Random(countdown)
            world = StreamModel(make(**CONFIGS[name]))
            world.disk.fault = fault_at(countdown, CHANGES, errno.EIO)
            if world.create():
                run(world)
            world.kill()
            world.recover()
            world.check()
            world.crash(random)
            world.recover()
            world.check()


@BY_CONFIG
def test_nothing_acknowledged_is_lost_when_a_change_of_the_disk_fails(name: str) -> None:
    fail_everywhere(name, stride=31)


@pytest.mark.long
@BY_CONFIG
def test_the_same_for_every_change_of_the_disk(name: str) -> None:
    fail_everywhere(name, stride=1)
