"""Sources that an argument of `strandline scan` names by an address instead of a path: `s3://bucket/prefix`, `-`.

Invariant: an argument that is the path of a file is none of these, whatever its name. A kind of source is imported when
an argument names it: clients of stores and registries take longer to import than a small scan runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from strandline.errors import InvalidInput
from strandline.scan import sources
from strandline.scan.path_globs import PathGlobs
from strandline.scan.sources import Source

STDIN = "-"
_BUCKETS = ("s3://", "gs://", "az://", "memory://")
_FILE = "file://"
_EXPORTS = ("export:", "slack:", "jira:", "confluence:")
_IMAGES = ("docker://", "image:", "oci:", "oci-archive:", "docker-archive:")


@dataclass(frozen=True)
class AddressOptions:
    """The options that apply to addresses."""

    name: str
    excludes: PathGlobs
    size_max: int
    stdin_name: str = "stdin"
    inventory: str | None = None
    inventory_columns: str | None = None
    platform: str | None = None
    leave_out: tuple[Path, ...] = ()


def reads_stdin(paths: Sequence[str | Path]) -> bool:
    """Return whether the standard input is among the sources: only this process can read it."""
    return STDIN in map(str, paths)


def check_addresses(paths: Sequence[str | Path], inventory: str | None, columns: str | None = None) -> None:
    """Raise for arguments that exclude each other."""
    if sum(str(path) == STDIN for path in paths) > 1:
        raise InvalidInput("the standard input can be read once", hint="give - once")
    if columns is not None and inventory is None:
        raise InvalidInput("--inventory-columns are those of a table", hint="give the table with --inventory")
    schemes = ("s3://",) if columns is None else _BUCKETS
    if inventory is not None and (len(paths) != 1 or not str(paths[0]).startswith(schemes)):
        raise InvalidInput(
            "--inventory lists the objects of one bucket",
            hint="strandline scan s3://BUCKET --inventory s3://…/manifest.json, or a table with --inventory-columns",
        )


def path_of(argument: str | Path) -> str | Path:
    """Return the path of an argument; `file:///folder` is one too."""
    text = str(argument)
    if not text.startswith(_FILE):
        return argument
    parts = urlsplit(text)
    if parts.netloc not in ("", "localhost"):
        raise InvalidInput(f"{text}: a file on another machine", hint="write file:///absolute/path")
    return unquote(parts.path)


def source_at(argument: str | Path, options: AddressOptions) -> Source | None:  # noqa: PLR0911 - a kind each
    """Return the source of an address; None for a path."""
    text = str(argument)
    if text == STDIN:
        return sources.StdinSource.named(options.stdin_name)
    if text.startswith(_BUCKETS):
        return sources.ObjectSource.at(
            text,
            name=options.name,
            excludes=options.excludes,
            size_max=options.size_max,
            inventory=options.inventory,
            columns=options.inventory_columns,
        )
    if text.startswith(_IMAGES) and not Path(text).exists():
        return sources.ImageSource.at(
            text, platform=options.platform, name=options.name, excludes=options.excludes, size_max=options.size_max
        )
    if text.startswith(("sqlite:", "replica:")) and not Path(text).exists():
        return sources.SqliteSource.at(
            text, name=options.name, excludes=options.excludes, leave_out=options.leave_out, size_max=options.size_max
        )
    if text.startswith(_EXPORTS) and not Path(text).exists():
        return sources.ExportSource.at(text, name=options.name, excludes=options.excludes, size_max=options.size_max)
    if text.startswith(("nats://", "tls://")):
        return sources.StreamSource.at(text, name=options.name)
    return None
