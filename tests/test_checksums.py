"""The checksum of every format: the same as the package's own, without what that brings along."""

import subprocess
import sys

import crc32c as package
from hypothesis import given
from hypothesis import strategies as st

from strandline.checksums import crc32c


@given(st.binary(), st.binary())
def test_checksums_are_those_of_the_package_and_go_on_from_one_another(first: bytes, second: bytes) -> None:
    assert crc32c(first) == package.crc32c(first)
    assert crc32c(second, crc32c(first)) == package.crc32c(first + second)


def test_a_checksum_imports_nothing_else() -> None:
    code = (
        "import sys; import strandline.checksums as c; "
        "assert c.crc32c(b'123456789') == 0xE3069283; "
        "assert not {'crc32c', 'importlib.metadata', 'email'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
