"""A scan in a process of its own that a test stops after three items."""

import os
import signal
import subprocess
import sys

from tests.cli.scan_command import Repository
from tests.waiting import PATIENCE_S

STOPS = """
import signal, sys
from strandline.scan.worker import shard_scanner
from strandline.scan.worker.page_writer import PageWriter
from strandline.cli.app import main

shard_scanner.PAGE_ITEMS_MAX = 1
flush, flushed = PageWriter.flush, []

def flush_and_stop(page, row):
    flush(page, row)
    flushed.append(row)
    if len(flushed) == 3:
        print("three items are committed", file=sys.stderr, flush=True)
        signal.pause()

PageWriter.flush = flush_and_stop
main()
"""
"""The command, with pages of one item; it waits for a signal after the third."""


def stopped(shop: Repository, number: signal.Signals, *arguments: str) -> tuple[int, str, str]:
    """Scan in a process of its own, and send it a signal after three items."""
    words = ["scan", str(shop.folder), "--rules", str(shop.rules), "--state", str(shop.state), "--without-spark"]
    process = subprocess.Popen(
        [sys.executable, "-c", STOPS, *words, "--lease-s", "1", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"STRANDLINE_USER": "ada"},
    )
    assert process.stderr is not None
    said = ""
    for line in process.stderr:
        said += line
        if "three items are committed" in line:
            break
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, said + err
