"""Idle connections are used again, by one at a time, and by no child."""

import os

import pytest

from strandline.errors import Closed
from strandline.pipeline.sql.pool import Pool


def make_pool(ended: list[object]) -> Pool[object]:
    return Pool("the pool", object, ended.append)


def test_what_was_given_back_is_used_again() -> None:
    pool = make_pool([])
    one, is_new = pool.take()
    other, other_is_new = pool.take()
    assert is_new
    assert other_is_new
    assert one is not other
    pool.give_back(one)
    assert pool.take() == (one, False)


def test_closing_ends_idle_ones_now_and_the_others_when_they_return() -> None:
    ended: list[object] = []
    pool = make_pool(ended)
    idle, busy = pool.take()[0], pool.take()[0]
    pool.give_back(idle)
    pool.close()
    assert ended == [idle]
    pool.give_back(busy)
    assert ended == [idle, busy]
    with pytest.raises(Closed, match="the pool is closed"):
        pool.take()


def test_a_child_neither_uses_nor_ends_what_it_inherits() -> None:
    ended: list[object] = []
    pool = make_pool(ended)
    inherited = pool.take()[0]
    pool.give_back(inherited)
    child = os.fork()
    if child == 0:
        taken, is_new = pool.take()
        pool.give_back(taken)
        pool.close()
        os._exit(0 if is_new and taken is not inherited and inherited not in ended else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert pool.take() == (inherited, False)
