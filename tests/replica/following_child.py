"""A follower in a process of its own: `python -m tests.replica.following_child FOLDER COPY`; prints how far it is."""

import sys
import time
from pathlib import Path

from strandline.objects import open_objects
from strandline.replica import Follower


def main(folder: str, copy: str) -> None:
    """Follow until killed."""
    follower = Follower(open_objects(f"file://{folder}"), Path(copy))
    while True:
        print(follower.catch_up().position.txid, flush=True)  # noqa: T201
        time.sleep(0.01)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
