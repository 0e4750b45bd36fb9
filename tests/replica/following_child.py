"""A follower in a process of its own: `python -m tests.replica.following_child FOLDER COPY`; prints how far it is."""

import sys
import time
from pathlib import Path

from strandline.objects import open_objects
from strandline.replica import Follower, follower
from tests.waiting import PATIENCE_S


def main(folder: str, copy: str) -> None:
    """Follow until killed."""
    follower.ROLL_BACK_MS = int(PATIENCE_S * 1000)
    following = Follower(open_objects(f"file://{folder}"), Path(copy))
    while True:
        print(following.catch_up().position.txid, flush=True)  # noqa: T201
        time.sleep(0.01)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
