"""What the arguments of `strandline scan` mean as sources, before anything is made."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from strandline.cli.app import app
from strandline.cli.scan_sources import Chosen, sources_of
from strandline.errors import InvalidInput
from strandline.scan.sources import Source


def chosen(*paths: Path, **more: Any) -> Chosen:  # noqa: ANN401
    """Return arguments that are as they are without options."""
    nothing = {"tables": [], "journals": [], "git": False, "staged": False, "since": None, "excludes": []}
    return Chosen(paths, **{**nothing, "exclude_from": None, "name": "", "size_max": None, "table_key": None, **more})


def listed(source: Source) -> list[str]:
    rows = [row for batch in source.list_items(lambda _: None) for row in batch.to_pylist()]
    return [source.display(row["locator"], row["extra"]) for row in rows]


def test_what_is_excluded_is_left_out_of_files_and_of_tables(tmp_path: Path) -> None:
    for name in ("old", "new"):
        pq.write_table(pa.table({"note": ["text"]}), tmp_path / f"{name}.parquet")
    sources = sources_of(chosen(tmp_path, tables=[f"parquet:{tmp_path}"], excludes=["old*"]), None)
    assert [listed(source) for source in sources] == [["new.parquet"], ["new.parquet"]]


def test_a_state_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="holds the results of scans"):
        sources_of(chosen(tables=[f"parquet:{tmp_path}"]), tmp_path)


def test_arguments_that_name_nothing_leave_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["scan", "nowhere"])
    assert isinstance(result.exception, InvalidInput)
    assert list(tmp_path.iterdir()) == []
