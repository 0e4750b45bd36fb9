"""The sources of `strandline scan`, from its arguments: paths, repositories, tables and journals.

Invariant: arguments without a source, and arguments that exclude each other, are errors before anything is created. A
kind of source is imported when an argument names it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from strandline.cli.scan_addresses import AddressOptions, check_addresses, path_of, source_at
from strandline.detect.locations import shown
from strandline.errors import InvalidInput
from strandline.scan import sources
from strandline.scan.path_globs import PathGlobs, parse_globs
from strandline.scan.sources import SIZE_MAX, FileSource, Source
from strandline.scan.sources.git_mirrors import mirrored, remote_at
from strandline.scan.sources.git_urls import is_git_url, without_login


@dataclass(frozen=True)
class Chosen:
    """The arguments that name sources."""

    paths: Sequence[str | Path]
    tables: Sequence[str]
    journals: Sequence[Path]
    git: bool
    staged: bool
    since: str | None
    excludes: Sequence[str]
    exclude_from: Path | None
    name: str
    size_max: int | None
    """The size beyond which files and blobs are skipped; None for the default."""
    table_key: str | None
    depth: int | None = None
    """The number of commits of each branch to fetch from remote repositories; None for all."""
    stdin_name: str = "stdin"
    inventory: str | None = None
    inventory_columns: str | None = None
    platform: str | None = None


def sources_of(chosen: Chosen, state_folder: Path | None) -> tuple[Source, ...]:
    """Return the sources, in the order of paths, tables and journals; the state folder is never one.

    A repository that is not named is the one of the working folder.
    """
    is_git = chosen.git or chosen.staged or chosen.since is not None
    if is_git and not chosen.paths:
        chosen = replace(chosen, paths=(Path(),))
    if not (chosen.paths or chosen.tables or chosen.journals):
        raise InvalidInput("nothing to scan", hint="give a folder or a file, or use --table or --journal")
    if chosen.name and len(chosen.paths) + len(chosen.tables) + len(chosen.journals) > 1:
        raise InvalidInput("--source-name names one source, but several are given", hint="scan them one by one")
    if chosen.size_max is not None and (chosen.tables or chosen.journals):
        raise InvalidInput(
            "--max-file-bytes applies to files and blobs only",
            hint="scan tables and journals without it",
        )
    is_remote = any(is_git_url(str(path)) for path in chosen.paths)
    if chosen.depth is not None and not is_remote:
        raise InvalidInput("--depth applies to remote repositories", hint="give an address such as https://host/a.git")
    if chosen.staged and is_remote:
        raise InvalidInput("a remote repository has no index", hint="leave out --staged")
    excludes = _excludes(chosen)
    leave_out = () if state_folder is None else (state_folder,)
    files = _repositories(chosen, excludes) if is_git else _files(chosen, excludes, leave_out)
    tables = [
        sources.TableSource.at(table, key=chosen.table_key, name=chosen.name, excludes=excludes, leave_out=leave_out)
        for table in chosen.tables
    ]
    journals = [sources.JournalSource.at(path, name=chosen.name) for path in chosen.journals]
    return (*files, *tables, *journals)


def check_repositories(chosen: Chosen) -> None:
    """Raise for arguments that do not go with a list of repositories."""
    given = {
        "paths": chosen.paths,
        "--table": chosen.tables,
        "--journal": chosen.journals,
        "--staged": chosen.staged,
        "--source-name": chosen.name,
        "--inventory": chosen.inventory,
        "--inventory-columns": chosen.inventory_columns,
    }
    if other := next((name for name, value in given.items() if value), None):
        raise InvalidInput(f"--repos excludes {other}", hint="scan them with a command of their own, in the same state")


def repository_source(chosen: Chosen, address: str, name: str, state_folder: Path | None) -> Source:
    """Return the source of one repository of a list: a remote one is fetched."""
    if "://" in address and not is_git_url(address) and not address.startswith("file://"):
        hint = "write an address of git (https, ssh), or a path; scan other sources with a command of their own"
        raise InvalidInput(f"{shown(without_login(address))}: not the address of a repository", hint=hint)
    depth = chosen.depth if is_git_url(address) else None
    (source,) = sources_of(replace(chosen, paths=(address,), name=name, depth=depth), state_folder)
    return source


def journal_to_follow(given: tuple[Source, ...]) -> "sources.JournalSource":
    """Return the journal to follow; any other source is an error."""
    (source, *others) = given
    if others or not isinstance(source, sources.JournalSource):
        raise InvalidInput(
            "--follow takes one journal and no other source", hint="strandline scan --journal PATH --follow"
        )
    return source


def _files(chosen: Chosen, excludes: PathGlobs, leave_out: tuple[Path, ...]) -> list[Source]:
    size_max = chosen.size_max or SIZE_MAX
    check_addresses(chosen.paths, chosen.inventory, chosen.inventory_columns)
    options = AddressOptions(
        chosen.name,
        excludes,
        size_max,
        chosen.stdin_name,
        chosen.inventory,
        chosen.inventory_columns,
        chosen.platform,
        leave_out,
    )
    return [
        (_repository(path, chosen, excludes) if is_git_url(str(path)) else source_at(path, options))
        or FileSource.at(
            path_of(path),
            name=chosen.name,
            excludes=excludes,
            leave_out=leave_out,
            size_max=size_max,
            in_repository=True,
        )
        for path in chosen.paths
    ]


def _repositories(chosen: Chosen, excludes: PathGlobs) -> list[Source]:
    return [_repository(path, chosen, excludes) for path in chosen.paths]


def _repository(path: str | Path, chosen: Chosen, excludes: PathGlobs) -> Source:
    """Return the history of a repository in a folder, or of the mirror of a remote one."""
    remote = remote_at(str(path), chosen.depth) if is_git_url(str(path)) else None
    return sources.GitSource.at(
        path_of(path) if remote is None else mirrored(remote),
        since=chosen.since,
        staged=chosen.staged,
        name=chosen.name,
        shown_as="" if remote is None else remote.shown,
        excludes=excludes,
        size_max=chosen.size_max or SIZE_MAX,
    )


def _excludes(chosen: Chosen) -> PathGlobs:
    lines = list(chosen.excludes)
    if chosen.exclude_from is not None:
        try:
            lines = [*chosen.exclude_from.read_text().splitlines(), *lines]
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise InvalidInput(
                f"{chosen.exclude_from}: {reason}", hint="--exclude-from takes a file of globs"
            ) from error
    return parse_globs("\n".join(lines), "--exclude")
