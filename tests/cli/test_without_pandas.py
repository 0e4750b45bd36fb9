"""Arrow imports pandas only where it is used."""

import subprocess
import sys

import pytest

CHECK = """
import sys
from strandline.cli.without_pandas import let_arrow_skip_pandas
{before}
let_arrow_skip_pandas()
import pyarrow as pa
pa.array([1, 2])
assert ("pandas" in sys.modules) == {is_there}
assert pa.table({{"a": [1]}}).to_pandas().a.tolist() == [1]
import pandas
assert pa.array(pandas.Series([3])).to_pylist() == [3]
"""


@pytest.mark.parametrize(("before", "is_there"), [("", False), ("import pandas, pyarrow", True)])
def test_lists_become_columns_without_pandas_and_tables_become_frames(before: str, is_there: bool) -> None:
    code = CHECK.format(before=before, is_there=is_there)
    subprocess.run([sys.executable, "-c", code], check=True)
