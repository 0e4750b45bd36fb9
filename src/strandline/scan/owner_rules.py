"""The owners of repositories in a state: rules of CODEOWNERS as the last scan of each saw them.

    owners/<instance, 32 bytes>    JSON, see `format_rules`

The rules are kept and not the owners of findings: a change of the file counts after the next scan, which scans nothing
again, and a report needs no repository.

Invariants: no comment of the file is kept; rules of a repository whose file is gone or too large are deleted;
a file that cannot be read changes nothing. No file, whatever is in it, ends a scan.
"""

import os
import stat
from collections.abc import Iterable, Sequence

from strandline.pipeline.errors import BATCH_ROWS_MAX
from strandline.pipeline.identity import TenantId
from strandline.pipeline.state import Delete, Put, ScannerState
from strandline.scan.codeowners import BYTES_MAX, PLACES, CodeOwners, format_rules, parse_codeowners, parse_rules
from strandline.scan.sources import FileSource, GitSource, Source
from strandline.scan.sources.files import OPEN_FLAGS

LINES_MAX = 100_000
STORED_BYTES_MAX = 4 << 20
"""The size of rules that are stored: each report reads them, and a value of scanner state has a limit too."""
_FILE_MODES = (b"100644", b"100755")


def keep_owner_rules(state: ScannerState, tenant: TenantId, sources: Sequence[Source]) -> None:
    """Store the rules of the repositories and folders among the sources, where they changed."""
    for source in sources:
        try:
            owners = read_codeowners(source)
        except OSError:
            continue  # the file is an item of the scan, and that says that it cannot be read
        key = _key(source.instance)
        (known,) = state.multi_get(tenant, [key])
        value = None if owners is None else format_rules(owners)
        if value is not None and len(value) > STORED_BYTES_MAX:  # escapes are longer than what they escape
            value = None
        if value != known:
            state.apply_batch(tenant, [Delete(key) if value is None else Put(key, value)])


def load_owner_rules(state: ScannerState, tenant: TenantId, instances: Iterable[bytes]) -> dict[bytes, CodeOwners]:
    """Return the rules of sources by their instances, of those that have any."""
    asked = sorted(set(instances))
    found: dict[bytes, CodeOwners] = {}
    for begin in range(0, len(asked), BATCH_ROWS_MAX):
        some = asked[begin : begin + BATCH_ROWS_MAX]
        values = state.multi_get(tenant, [_key(one) for one in some])
        found |= {one: parse_rules(value) for one, value in zip(some, values, strict=True) if value is not None}
    return found


def read_codeowners(source: Source) -> CodeOwners | None:
    """Return the rules of a source: those of the work tree, or of HEAD for a history; None if it has none."""
    if isinstance(source, GitSource):
        found = _at_head(source)
    elif isinstance(source, FileSource):
        found = _in_folder(source.root if source.repository is None else source.repository.top)
    else:
        return None
    if found is None or found[1].count(b"\n") > LINES_MAX:
        return None
    return parse_codeowners(found[1].decode(errors="replace"), found[0])


def _in_folder(folder: bytes) -> tuple[str, bytes] | None:
    for place in PLACES:
        path = os.path.join(folder, os.fsencode(place))  # noqa: PTH118 - a path of bytes
        try:
            if not stat.S_ISREG(os.lstat(path).st_mode):  # a link, as in a history; or a folder
                continue
            file = os.open(path, OPEN_FLAGS)
        except (FileNotFoundError, NotADirectoryError):
            continue
        with os.fdopen(file, "rb") as opened:
            data = opened.read(BYTES_MAX + 1)
            return (place, data) if len(data) <= BYTES_MAX else None
    return None


def _at_head(source: GitSource) -> tuple[str, bytes] | None:
    listed = source.git.ask("ls-tree", "--full-tree", "-l", "-z", "HEAD", "--", *PLACES) or b""
    files: dict[str, tuple[bytes, int]] = {}
    for line in filter(None, listed.split(b"\0")):
        facts, _, path = line.partition(b"\t")
        mode, _, blob, size = facts.split()
        if mode in _FILE_MODES and size.isdigit():  # of a blob that a partial clone lacks it is a word
            files[os.fsdecode(path)] = blob, int(size)
    place = next((one for one in PLACES if one in files), None)
    if place is None or files[place][1] > BYTES_MAX:
        return None
    return place, source.git.ask("cat-file", "blob", files[place][0]) or b""


def _key(instance: bytes) -> bytes:
    return b"owners/" + instance
