"""Hyperscan databases: the import of hyperscan waits for the first of them."""

import subprocess
import sys

import hyperscan

from strandline.detect.matching.databases import FIRST_ONLY


def test_importing_the_engine_does_not_load_hyperscan() -> None:
    code = "import sys; from strandline.detect import Engine; print('hyperscan' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"


def test_the_flag_of_a_first_match_is_that_of_hyperscan() -> None:
    assert int(hyperscan.HS_FLAG_SINGLEMATCH) == FIRST_ONLY
