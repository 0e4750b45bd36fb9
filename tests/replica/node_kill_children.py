"""Followers to be killed: `python -m tests.replica.node_kill_children` forks one for each line `REPLICA DATABASE WHEN`.

A child applies what the replica has to the database of a node, transaction by transaction, and kills itself before the
`WHEN`-th line of the code that writes the log and its index; 0: never. The exit status is printed. Before that, with -1
for `WHEN`, the numbers of the lines are printed at which a log begins anew.
"""

import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from strandline.objects import LocalObjects
from strandline.replica import follower, node_copy, wal_index, write_lock

TRACED = frozenset(str(module.__file__) for module in (node_copy, wal_index, write_lock))
CHECKPOINT_FRAMES, LOG_KEPT_BYTES = 10, 10_000
BEGINS_ANEW = {"_begin_anew", "reset_checkpoint_state"}


def kill_at(when: int, found: list[int]) -> None:
    """Die before a line of the traced modules, or note the lines at which a log begins anew."""
    number = 0

    def line(frame: FrameType, event: str, _: object) -> Any:  # noqa: ANN401 - as `settrace` has it
        nonlocal number
        if event == "line":
            number += 1
            if number == when:
                os.kill(os.getpid(), signal.SIGKILL)
            if when < 0 and frame.f_code.co_name in BEGINS_ANEW:
                found.append(number)
        return line

    def call(frame: FrameType, _event: str, _: object) -> Any:  # noqa: ANN401
        return line if frame.f_code.co_filename in TRACED else None

    sys.settrace(call)


def follow(replica: Path, database: Path, when: int) -> None:
    """Apply everything, or die."""
    follower.BATCH_BYTES = 1
    vars(write_lock).update(CHECKPOINT_FRAMES=CHECKPOINT_FRAMES, LOG_KEPT_BYTES=LOG_KEPT_BYTES)
    copy, found = node_copy.NodeCopy(LocalObjects(replica), database), list[int]()
    if when:
        kill_at(when, found)
    copy.settle()
    copy.catch_up()
    sys.settrace(None)
    copy.close()
    if when < 0:
        print(*found, flush=True)  # noqa: T201


def main() -> None:
    """Fork a child for each line."""
    for asked in sys.stdin:
        replica, database, when = asked.split()
        pid = os.fork()
        if pid == 0:
            code = 70
            try:
                follow(Path(replica), Path(database), int(when))
                code = 0
            except BaseException as error:  # noqa: BLE001 - told by the status, and below
                print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)  # noqa: T201
            finally:
                os._exit(code)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
