"""Where the options of a command get values that the command line does not give: variables, and `strandline.toml`.

A command's section is the first word of its name: `[fold]` is for every command of `strandline fold`. A key is an
option's long name without its dashes, and its variable is `STRANDLINE_<SECTION>_<KEY>`, before a variable that the
option declares itself. `strandline.config.schema.json` lists them all; `tools/config_schema.py` writes it out of the
options.

Invariants: a flag beats a variable, a variable the file, the file the default. A command line that names something to
scan takes nothing to scan from the file; a flag that contradicts a setting of the file beats it. Help reads no file:
it neither fails for it nor shows its values as defaults.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from strandline.config.file import ConfigFile, find_file, read_file
from strandline.config.settings import environment_name

PER_CALL = frozenset(
    [
        *(
            "as",
            "dry-run",
            "epoch",
            "explain",
            "follow",
            "help",
            "json",
            "keep",
            "keys",
            "limit",
            "once",
            "prefix",
            "raw",
        ),
        *("level", "reason", "resume", "retry-parked", "seconds", "since", "start", "stop", "stream"),
        *("timestamp", "txid", "until", "yes"),
    ]
)
"""Options that ask for something once, confirm something, or mean different things in commands of one group."""
ARGUMENTS = {("scan", "paths"), ("pipeline", "address")}
"""Arguments that are keys too."""
WITHOUT_KEYS = {"rules"}
"""Groups whose commands look at one thing once: `rules` is a key of `[scan]`, and no section."""
OTHER_MEANING = {
    ("pipeline", "status", "tenant"),  # it takes an id
    # A file that says what `list` shows must not say what is decided about.
    *(("findings", "triage", name) for name in ("all", "baseline", "confidence", "ignore-file", "is", "path", "rule")),
    *(("findings", "triage", name) for name in ("everywhere", "no-ignore", "secret", "source", "undo")),
    # A file that stands in what is scanned must not send secrets anywhere.
    *(("scan", "scan", name) for name in ("verify", "verify-host")),
    *(("findings", "verify", name) for name in ("again", "rules", "verify-host")),
}
"""Options that mean something else than the key of their name, or that no file may give."""
SOURCES = {"scan": frozenset({"paths", "table", "table_key", "journal", "git", "staged", "since", "source_name"})}
"""Parameters that go together: a command line that has one of them takes none of the others from the file."""
_OF_SPARK = ("master", "conf", "ui", "with_spark")
EXCLUDED = {
    "scan": {
        "as_json": frozenset({"form"}),
        "without_spark": frozenset(_OF_SPARK),
        **dict.fromkeys(_OF_SPARK, frozenset({"without_spark"})),
    }
}
"""Parameters that contradict others: a command line that has one takes those others not from the file."""


OPTIONAL_VALUES = {"scan": {"--exit-code": "1"}}
"""Options whose value may be left out, and the value that they have then: typer knows no such option."""


def with_values(command: str, arguments: list[str]) -> list[str]:
    """Return arguments with the values that options leave out."""
    optional = OPTIONAL_VALUES.get(command, {})
    found: list[str] = []
    for at, word in enumerate(arguments):
        if word == "--":
            return found + arguments[at:]
        found.append(word)
        if word in optional and not "".join(arguments[at + 1 : at + 2]).isdecimal():
            found.append(optional[word])
    return found


def key_of(section: str, command: str, param: Any) -> str | None:  # noqa: ANN401 - typer's copy of click is private
    """Return the key of a parameter of a command, None if it has none."""
    if section in WITHOUT_KEYS:
        return None
    if param.param_type_name == "argument":
        return str(param.name) if (section, param.name) in ARGUMENTS else None
    long: str = max(param.opts, key=len).lstrip("-")
    if long in PER_CALL or (section, command, long) in OTHER_MEANING or param.required or param.hidden:
        return None
    return long


def configure(ctx: Any, name: str, command: Any, arguments: list[str]) -> None:  # noqa: ANN401 - as above
    """Let a command that is about to be parsed find its values; `ctx` is that of the group which has it."""
    root = ctx.find_root()
    section = name if ctx is root else ctx.info_name
    keys = {key: param for param in command.params if (key := key_of(section, name, param)) is not None}
    for key, param in keys.items():
        declared = [param.envvar] if isinstance(param.envvar, str) else list(param.envvar or ())
        param.show_envvar = bool(declared)
        param.envvar = [environment_name(section, key), *declared]
    if not keys or root.params.get("no_config") or "help" in (given := _given(ctx, name, command, arguments)):
        return
    file = config_file(root.params.get("config"))
    if file is None:
        return
    taken = {param.name: found.value for key, param in keys.items() if (found := file.get(section, key)) is not None}
    together = SOURCES.get(section, frozenset())
    excluded = EXCLUDED.get(section, {})
    left_out = (together if together & given else frozenset()).union(*(excluded.get(each, ()) for each in given))
    ctx.default_map = {name: {param: value for param, value in taken.items() if param not in left_out}}


def config_file(given: Path | None = None, environ: Mapping[str, str] = os.environ) -> ConfigFile | None:
    """Read the file that is named, else the one found upward from the working folder; None if there is none."""
    path = given or find_file()
    return None if path is None else read_file(path, environ)


def _given(ctx: Any, name: str, command: Any, arguments: list[str]) -> set[str]:  # noqa: ANN401 - as above
    """Return the names of parameters that a command line gives; of one that is wrong, what can be told."""
    with command.context_class(command, info_name=name, parent=ctx, resilient_parsing=True) as inner:
        inner.ignore_unknown_options = True
        values, _, _ = command.make_parser(inner).parse_args(args=list(arguments))
    return {key for key, value in values.items() if value not in (None, (), [])}
