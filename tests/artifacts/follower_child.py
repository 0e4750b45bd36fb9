"""A process that follows a bucket with a fold, starts from artifacts and publishes its own."""

import os
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import strandline
from strandline.fold import FoldMode
from tests.straced import let_anyone_trace


class Followed(NamedTuple):
    """What a process follows, where it keeps its fold, and where artifacts are."""

    bucket: str
    path: Path
    artifacts: str
    mode: FoldMode
    export_every_s: float
    environ: Mapping[str, str]


def run(link: Connection, followed: Followed) -> None:
    """Wait for a word, then follow; tell the revision that the fold has whenever asked, and end at the last word."""
    os.environ.update(followed.environ)
    let_anyone_trace()
    link.send(os.getpid())
    link.recv()
    with strandline.follow(
        followed.bucket,
        followed.path,
        mode=followed.mode,
        bootstrap=followed.artifacts,
        export_every_s=followed.export_every_s,
    ) as fold:
        while link.recv() == "revision":
            link.send(fold.status().revision)
