"""The scan engine beside Kingfisher: how well it finds, how fast, and how near it is to hyperscan's own limit.

Quality is measured on a made corpus with labels (`_corpus`), and `docs/detection.md` shows it. Speed is measured on a
tree of source code of this machine, copied so that both see the same files, on one core each, in seconds of that core:
reading the files counts, starting up does not (for Kingfisher, what a folder of one file costs it is taken off). The
engine is given as many files at once as a worker of a scan gives it. The limit is a bare hyperscan scan of our database
over the same bytes. Results are checked before a figure counts: both must have seen all bytes, and each must find a
planted secret.
"""

import os
import random
import resource
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from sysconfig import get_path

import hyperscan

from benchmarks._corpus import corpus
from benchmarks._foreign import foreign_score, peer_foreign_score, write_foreign
from benchmarks._harness import Row, alone, compare, medians, report, scratch
from benchmarks._peer import PeerReport, peer_scan
from benchmarks._quality import label_counts, our_score, peer_score, rule_results, write_results
from strandline.detect import Engine, expand, load_builtin
from strandline.pipeline.identity import TenantSecretKey
from strandline.scan.worker.fetcher import FETCH_BYTES_MAX, FETCH_ITEMS_MAX

ROUNDS = 3
GOAL = 0.95
ROOTS = (
    "/usr/include",
    "/usr/lib/python3",
    "/usr/lib/python3.11",
    "/usr/share",
    get_path("purelib"),
    get_path("stdlib"),
)
TREE_BYTES_MIN = 300_000_000
FILE_BYTES_MAX = 2_000_000
PLANTED = "token.env"
CELLS, CELL_BYTES = 100_000, 100
KEY = TenantSecretKey(bytes(32))


def quality(engine: Engine) -> Iterator[Row]:
    """Yield recall and precision, and write the page about them."""
    made = corpus(engine.rules)
    with scratch() as folder:
        made.write(folder)
        peer = peer_score(peer_scan(folder).findings, made)
    with scratch() as folder:
        files = write_foreign(folder)
        peer_foreign = peer_foreign_score(peer_scan(folder).findings, files)
    ours, foreign = our_score(engine, made), foreign_score(engine)
    assert foreign.secrets == peer_foreign.secrets
    results = rule_results(made, ours, peer)
    labels = label_counts(made)
    shared = Counter({each.rule_id: each.labels for each in results if each.peer_rules})
    assert labels.total() == len(made.labels)
    assert len(labels) == len(engine.rules.rules)
    write_results(results, made, ours, peer, (foreign, peer_foreign))
    yield alone("recall (goal: at least)", ours.recall(labels), "share", goal=GOAL)
    yield alone("precision (goal: at least)", ours.precision, "share", goal=GOAL)
    yield compare(
        f"recall, {labels.total():,} secrets of {len(labels)} rules",
        ours.recall(labels),
        "Kingfisher",
        peer.recall(labels),
        "share",
    )
    yield compare(
        f"recall, providers that both know, {shared.total():,} secrets",
        ours.recall(shared),
        "Kingfisher",
        peer.recall(shared),
        "share",
        goal=1,
    )
    yield compare("precision", ours.precision, "Kingfisher", peer.precision, "share", goal=1)
    yield compare(
        f"recall, files as other programs write them, {foreign.secrets.total():,} secrets",
        foreign.recall,
        "Kingfisher",
        peer_foreign.recall,
        "share",
        goal=1,
    )
    yield compare(
        "precision, files as other programs write them",
        foreign.precision,
        "Kingfisher",
        peer_foreign.precision,
        "share",
        goal=1,
    )


def copied_tree(folder: Path) -> list[bytes]:
    """Copy text files of this machine to a folder, with one secret, and return what they hold."""
    held: list[bytes] = []
    for path in text_files():
        data = path.read_bytes()
        target = folder / f"{len(held) // 1000:03}" / f"{len(held):06}{path.suffix}"
        target.parent.mkdir(exist_ok=True)
        shutil.copyfile(path, target)
        held.append(data)
    secret = expand("TOKEN={{github-crc32:ghp_}}\n", "benchmark").encode()
    (folder / PLANTED).write_bytes(secret)
    size = sum(map(len, held))
    assert size >= TREE_BYTES_MIN, f"only {size:,} bytes of text under {', '.join(ROOTS)}"
    return [*held, secret]


def text_files() -> Iterator[Path]:
    """Yield the text files under the roots that are not too large, each once."""
    seen: set[tuple[int, int]] = set()
    for root in dict.fromkeys(ROOTS):
        for parent, folders, names in os.walk(root):
            folders.sort()
            for name in sorted(names):
                path = Path(parent) / name
                stat = path.lstat()
                if (
                    not path.is_symlink()
                    and path.is_file()
                    and 0 < stat.st_size <= FILE_BYTES_MAX
                    and (stat.st_dev, stat.st_ino) not in seen
                ):
                    seen.add((stat.st_dev, stat.st_ino))
                    if (
                        path.suffix not in {".gz", ".zip", ".xz", ".bz2", ".zst", ".pyc"}
                        and b"\0" not in path.read_bytes()[:8192]
                    ):
                        yield path


def speed(engine: Engine) -> Iterator[Row]:
    """Yield how many megabytes a second are scanned on one core."""
    with scratch() as folder:
        tree, small = folder / "tree", folder / "small"
        tree.mkdir()
        small.mkdir()
        held = copied_tree(tree)
        shutil.copyfile(tree / PLANTED, small / PLANTED)
        paths = sorted(str(path) for path in tree.rglob("*") if path.is_file())
        size = sum(map(len, held))
        bare = bare_database(engine)
        counts = [0, 0]

        def ours() -> float:
            begin = time.process_time()
            found = [rule_id for group in fetches(paths) for rule_id in found_in(engine, group)]
            seconds = time.process_time() - begin
            assert "github-pat" in found
            counts[0] = len(found) - 1
            return size / seconds / 1e6

        def peer() -> float:
            start, done = peer_seconds(small)[0], peer_seconds(tree)
            seconds, scanned = done[0] - start, done[1]
            assert scanned.bytes_seen >= size * 0.99, f"it saw {scanned.bytes_seen:,} bytes of {size:,}"
            assert any(found.path == PLANTED for found in scanned.findings)
            counts[1] = sum(found.path != PLANTED for found in scanned.findings)
            return size / seconds / 1e6

        def limit() -> float:
            begin = time.process_time()
            for data in held:
                bare(data)
            return size / (time.process_time() - begin) / 1e6

        ours_rate, peer_rate, bare_rate = medians(ROUNDS, [ours, peer, limit])
    what = f"{size / 1e6:,.0f} MB of source code in {len(held):,} files, one core"
    yield compare(what, ours_rate, "Kingfisher --jobs 1", peer_rate, "MB/s", goal=1)
    yield compare("the same, against the limit", ours_rate, "bare hyperscan, our database", bare_rate, "MB/s")
    yield Row("findings in code without planted ones", counts[0], "Kingfisher", counts[1], "findings", None, None, None)


def read(path: str) -> bytes:
    """Return what a file holds."""
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - a Path is half of what reading a small file costs
        return file.read()


def fetches(paths: Sequence[str]) -> Iterator[dict[str, bytes]]:
    """Yield files with what they hold, in groups as a worker of a scan fetches them."""
    group: dict[str, bytes] = {}
    size = 0
    for path in paths:
        group[path] = read(path)
        size += len(group[path])
        if len(group) == FETCH_ITEMS_MAX or size >= FETCH_BYTES_MAX:
            yield group
            group, size = {}, 0
    yield group


def found_in(engine: Engine, group: dict[str, bytes]) -> Iterator[str]:
    """Yield the rules of the findings in some files, as a worker of a scan finds them."""
    paths, held = list(group), list(group.values())
    for number, matches in engine.suspects(held, paths).items():
        for each in engine.scan(held[number], paths[number], matches=matches).findings:
            yield each.rule_id


def peer_seconds(folder: Path) -> tuple[float, PeerReport]:
    """Return the seconds of one core that the peer takes for a folder, and what it says."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = peer_scan(folder, "--jobs", "1", core=min(os.sched_getaffinity(0)))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done


def bare_database(engine: Engine) -> Callable[[bytes], object]:
    """Return a scan of the engine's own database that keeps nothing."""
    database = hyperscan.loadb(engine.saved().database, hyperscan.HS_MODE_BLOCK)
    space = hyperscan.Scratch(database)
    return lambda data: database.scan(data, match_event_handler=_ignored, scratch=space)


def _ignored(*_: object) -> None:
    return


def cells(engine: Engine) -> Iterator[Row]:
    """Yield what many small values together cost beside one by one."""
    rng = random.Random(1)
    words = ("order", "of", "a", "customer", "was", "shipped", "to", "an", "address", "with", "invoice", "and", "note")
    values = [" ".join(rng.choice(words) for _ in range(25))[:CELL_BYTES].encode() for _ in range(CELLS)]
    values[CELLS // 2] = expand("TOKEN={{github-crc32:ghp_}}", "cell").encode()

    def together() -> float:
        begin = time.process_time()
        found = engine.scan_many(values)
        seconds = time.process_time() - begin
        assert found.keys() == {CELLS // 2}
        return CELLS / seconds

    def one_by_one() -> float:
        begin = time.process_time()
        found = {at for at, value in enumerate(values) if engine.scan(value).findings}
        seconds = time.process_time() - begin
        assert found == {CELLS // 2}
        return CELLS / seconds

    rates = medians(ROUNDS, [together, one_by_one])
    yield compare(
        f"{CELLS:,} values of {CELL_BYTES} bytes, scan_many", rates[0], "a loop of scan", rates[1], "values/s", goal=20
    )


def main() -> None:
    """Run all and report."""
    engine = Engine(load_builtin(), key=KEY)
    report("scan", [*quality(engine), *speed(engine), *cells(engine)])


if __name__ == "__main__":
    main()
