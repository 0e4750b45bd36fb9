"""Folds, buckets, leases and objects are imported without the packages of their extras."""

import subprocess
import sys
from pathlib import Path

import pytest

EXTRAS = ("apsw", "rocksdict", "obstore", "nats", "nkeys", "nacl", "grpc")


@pytest.mark.parametrize("package", ["fold", "kv", "nats", "lease", "objects"])
def test_importing_a_package_loads_no_package_of_an_extra(package: str) -> None:
    code = f"import sys, strandline.{package}; print(*(name for name in {EXTRAS} if name in sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not found.stdout.split()


@pytest.mark.parametrize(
    ("package", "code", "extra"),
    [
        ("apsw", "from strandline.fold import SqliteStore", "sqlite"),
        ("rocksdict", "from strandline.fold import RocksDbStore", "rocksdb"),
        ("obstore", "from strandline.objects import open_objects; open_objects('s3://bucket')", "s3"),
    ],
)
def test_a_part_without_its_extra_names_the_extra(package: str, code: str, extra: str) -> None:
    text = f"""
import sys
sys.modules[{package!r}] = None
from strandline.errors import MissingExtra
try:
    {code}
except MissingExtra as missing:
    print(missing.extra)
"""
    found = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == extra


def test_a_first_sweep_of_a_log_imports_no_pandas(tmp_path: Path) -> None:
    """Which takes longer than reading a million keys."""
    code = f"""
import sys
from strandline.fold import FoldBatch, FoldCursor, format_fold_cursor, open_fold
from strandline.fold.watch.sweeper import Limits, scan
store = open_fold({str(tmp_path / "prices.log")!r})
batch = FoldBatch([b"a", b"b"], [b"1", b"2"], [(5).to_bytes(8), (9).to_bytes(8)])
store.apply(batch, format_fold_cursor(FoldCursor(9)))
print(scan(store, Limits(first=7, now_ns=1)).left, "pandas" in sys.modules)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (found.stdout, found.stderr) == ("[b'a'] False\n", "")
