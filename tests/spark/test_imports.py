"""Names of `strandline.spark` are imported late: Spark's worker daemon imports the package before it forks."""

import json
import subprocess
import sys

import pytest

import strandline.spark

HEAVY = ("numpy", "pandas", "py4j", "pyarrow", "pyspark")


def loaded(statement: str) -> list[str]:
    """Return which heavy libraries a process has loaded after a statement."""
    script = f"import json, sys\n{statement}\nprint(json.dumps(sorted(set({HEAVY}) & sys.modules.keys())))"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return list(json.loads(done.stdout))


@pytest.mark.parametrize("statement", ["import strandline.spark", "from strandline.spark import session"])
def test_the_package_and_its_session_load_no_heavy_library(statement: str) -> None:
    assert loaded(statement) == []


def test_functions_for_notebooks_load_no_pyspark() -> None:
    names = ", ".join(strandline.spark.__all__)
    assert not {"py4j", "pyspark"} & set(loaded(f"from strandline.spark import {names}"))


def test_a_name_that_the_package_does_not_have_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"'strandline\.spark' has no attribute 'scan_file'"):
        strandline.spark.scan_file  # noqa: B018 # type: ignore[attr-defined]


def test_a_name_stays_the_function_after_its_module_was_imported() -> None:
    assert (
        loaded("import strandline.spark.sessions\nfrom strandline.spark import session\nassert callable(session)") == []
    )
