"""Hints in the words of the command line: libraries name parameters and functions, commands have options.

Invariants: a hint says the same in other words; what has no word here is printed as it is. The table is the only place
that knows both, so that an error's hint is written once.
"""

import re

WORDS = {
    "a restorer": "--bootstrap ADDRESS with an artifact of this bucket",
    "a restorer that has one": "--bootstrap ADDRESS with an artifact of this bucket",
    " (ExportLease)": ": `strandline fold run --publish` sees to that",
    "give bootstrap": "give --bootstrap",
    "export with a scope that covers this": "publish a fold with these --prefix, or without any",
    "give the artifact's backend, or export it in the logical form, which every backend takes": "give the artifact's "
    "--backend, or export it without --raw, which every backend takes",
    "RepairMode.NONE": "--repair none",
    "`repair_fold` (strandline fold repair)": "`strandline fold repair`",
    "`repair_fold` with FoldMode.MIRROR": "`strandline fold repair --mode mirror`",
    "leave the mode out": "leave --mode out",
    "begin an archive at a path of its own": "begin an archive with --mode archive at a path of its own",
    "a StoreConfig to create it with": "the name of one that exists",
    "StoreConfig(ttl=True)": "a time to live of single values allowed",
    "tls_ca": "--tls-ca",
    "tls_cert": "--tls-cert",
    "tls_key": "--tls-key",
    "creds, creds_file,": "--creds",
    "bytes_max": "--max-bucket-size",
    "open_read_only": "`strandline fold get`, `range` or `status`",
    "`repair_append_log`": "`strandline.fold.repair_append_log` in Python",
    "follow()": "--follow",
    "status()": "`strandline fold status`",
    "(JournalReader.open)": "",
    "watch_applied": "`strandline fold run`",
    " with acquire()": "",
    "stop writing at once; acquire() leads under a new epoch": "`strandline lease show` prints the epoch of the holder",
}
"""What libraries call things, and what the command line does."""

_FOUND = re.compile("|".join(map(re.escape, sorted(WORDS, key=len, reverse=True))))


def in_cli_words(hint: str) -> str:
    """Return a hint as a user of the command line can follow it."""
    return _FOUND.sub(lambda found: WORDS[found.group()], hint).rstrip()
