"""Folds, buckets, leases and objects are imported without the packages of their extras."""

import subprocess
import sys

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
