"""Ports for servers of tests are given once, to one worker, and not by the kernel to anybody else."""

import os
import random
import socket

import pytest

from tests.ports import Given, free_ports, range_of


def test_workers_of_a_run_have_ranges_of_their_own_and_the_kernel_gives_none_of_them_away() -> None:
    environs = [{"PYTEST_XDIST_WORKER": f"gw{number}", "PYTEST_XDIST_WORKER_COUNT": "3"} for number in range(5)]
    ranges = [range_of(environ) for environ in environs]
    assert len(set().union(*ranges[:3])) == sum(map(len, ranges[:3]))
    assert ranges[3:] == ranges[:2], "the fourth takes the place of one that has crashed"
    assert max(max(ports) for ports in ranges) < 32_768, "from there on Linux gives them away by default"
    assert range_of({}).start == ranges[0].start


def test_no_port_is_given_twice_nor_one_that_is_taken_whatever_seeds_the_common_source() -> None:
    random.seed(0)
    first = free_ports(50)
    random.seed(0)
    assert len({*first, *free_ports(50)}) == 100
    (taken,) = free_ports(1)
    with socket.create_server(("127.0.0.1", taken)):
        assert taken not in free_ports(len(range_of(os.environ)) - 400)


def test_a_child_of_fork_begins_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    given, first = Given(), range_of(os.environ).start
    monkeypatch.setattr(random.SystemRandom, "randrange", lambda *_: 0)
    assert [next(given) for _ in range(3)] == [first, first + 1, first + 2]
    monkeypatch.setattr(random.SystemRandom, "randrange", lambda *_: 100)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert next(given) == first + 100
