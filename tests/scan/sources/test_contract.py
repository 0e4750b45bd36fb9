"""Every source keeps the contract, and the contract catches sources that do not."""

import inspect
import json
import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from itertools import count
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline.journal import Journal
from strandline.objects import open_objects
from strandline.scan.sources import (
    ExportSource,
    FileSource,
    GitSource,
    ImageSource,
    JournalSource,
    ObjectSource,
    SqliteSource,
    TableSource,
)
from strandline.scan.sources.journals import format_block
from strandline.scan.sources.tables import format_locator
from strandline.testing import SOURCE_CHECKS, CheckedSource, ContractBroken, SourceCheck, check_source, sources
from strandline.testing.contract import named
from tests.scan.sources.broken import CAUGHT_BY, Broken
from tests.scan.sources.export_builder import confluence, jira, slack
from tests.scan.sources.export_builder import write as write_export
from tests.scan.sources.helpers import Repository, write
from tests.scan.sources.image_builder import Built


def files(folder: Path) -> CheckedSource:
    numbers = count()
    write(folder, {"a": b"first", "d/b": b"second"})

    def put(data: bytes) -> None:
        write(folder, {f"new{next(numbers)}": data})

    return CheckedSource(FileSource.at(folder), put, lambda data: write(folder, {"a": data}), b"gone")


def git(folder: Path, *, staged: bool = False) -> CheckedSource:
    repository = Repository(folder)
    numbers = count()

    def save(files: dict[str, bytes]) -> None:
        if staged:
            write(folder, files)
            repository.git("add", "-A")
        else:
            repository.commit(files)

    save({"a": b"first", "d/b": b"second"})
    return CheckedSource(
        GitSource.at(folder, staged=staged),
        lambda data: save({f"new{next(numbers)}": data}),
        lambda data: save({"a": data}),
        b"0" * 40,
    )


def table(folder: Path) -> CheckedSource:
    numbers = count()
    folder.mkdir(exist_ok=True)

    def save(name: str, *values: bytes) -> None:
        columns = {"n": range(len(values)), "data": values, "tags": [[value] for value in values]}
        pq.write_table(pa.table({key: list(value) for key, value in columns.items()}), folder / name, row_group_size=2)

    save("a.parquet", b"first", b"second", b"third")
    return CheckedSource(
        TableSource.at(f"parquet:{folder}", key="n"),
        lambda data: save(f"new{next(numbers)}.parquet", data, b"beside it"),
        lambda data: save("a.parquet", data),
        format_locator(b"a.parquet", 7),
    )


def journal(folder: Path) -> CheckedSource:
    def append(*values: bytes) -> None:
        with Journal.open(folder) as opened:
            opened.append(list(values), keys=[b"key of " + value for value in values])

    append(*(b"value %d" % number for number in range(1_500)))
    return CheckedSource(JournalSource.at(folder), append, append, format_block(9))


def bucket(_: Path) -> CheckedSource:
    address = f"memory://{uuid4().hex}"
    store = open_objects(address)
    numbers = count()
    store.put("a", b"first")
    store.put("d/b", b"second")
    return CheckedSource(
        ObjectSource.at(address),
        lambda data: none(store.put(f"new{next(numbers)}", data)),
        lambda data: none(store.put("a", data)),
        b"gone",
    )


def image(folder: Path) -> CheckedSource:
    layers = [{"a": b"first", "d/b": b"second"}]

    def push(data: bytes) -> None:
        layers.append({f"new{len(layers)}": data})
        Built(layers).layout(folder)

    Built(layers).layout(folder)
    return CheckedSource(ImageSource.at(f"oci:{folder}"), push, push, b"gone")


def sqlite(folder: Path) -> CheckedSource:
    folder.mkdir(exist_ok=True)

    def run(statement: str, *values: bytes | str) -> None:
        with closing(sqlite3.connect(folder / "app.db")) as connection, connection:
            connection.execute(statement, values)

    for table in ("a", "b"):
        run(f"CREATE TABLE {table} (x)")
        run(f"INSERT INTO {table} VALUES (?)", f"first of {table}")  # noqa: S608 - one of two names
    return CheckedSource(
        SqliteSource.at(f"sqlite:{folder}"),
        lambda data: run("INSERT INTO a VALUES (?)", data),
        lambda data: run("UPDATE b SET x = ?", data),
        b"app.db\0gone\0",
    )


def slack_export(folder: Path) -> CheckedSource:
    numbers = count()
    write_export(folder, slack())

    def put(data: bytes) -> None:
        messages = [{"type": "message", "ts": f"170009{next(numbers)}.000100", "text": data.decode()}]
        write_export(folder, {f"general/2023-12-{10 + next(numbers)}.json": json.dumps(messages)})

    def change(data: bytes) -> None:
        write_export(folder, slack(data.decode()))

    return CheckedSource(ExportSource.at(f"export:{folder}"), put, change, b"d\0C9\x002023-01-01")


def jira_export(folder: Path) -> CheckedSource:
    added: list[str] = []
    write_export(folder, jira())

    def put(data: bytes) -> None:
        added.append(f"<Worklog id='{len(added)}' issue='10101' body='{data.decode()}'/>")
        write_export(folder, jira(more="".join(added)))

    return CheckedSource(
        ExportSource.at(f"export:{folder}"),
        put,
        lambda data: none(write_export(folder, jira(data.decode(), more="".join(added)))),
        b"i\0SHOP-99",
    )


def confluence_export(folder: Path) -> CheckedSource:
    added: list[str] = []
    write_export(folder, confluence())

    def put(data: bytes) -> None:
        body = f"<property name='body'>{data.decode()}</property>"
        added.append(f"<object class='BodyContent'><id name='id'>9{len(added)}</id>{body}</object>")
        write_export(folder, confluence(extra="".join(added)))

    return CheckedSource(
        ExportSource.at(f"export:{folder}"),
        put,
        lambda data: none(write_export(folder, confluence(data.decode(), extra="".join(added)))),
        b"p\0ENG\x009999",
    )


def none(_: object) -> None:
    """Return nothing, whatever was returned."""


SOURCES: dict[str, Callable[[Path], CheckedSource]] = {
    "files": files,
    "git": git,
    "git, staged": lambda folder: git(folder, staged=True),
    "table": table,
    "journal": journal,
    "bucket": bucket,
    "image": image,
    "sqlite": sqlite,
    "slack": slack_export,
    "jira": jira_export,
    "confluence": confluence_export,
}


@pytest.mark.parametrize("check", SOURCE_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("source", SOURCES)
def test_sources_keep_the_contract(source: str, check: SourceCheck, tmp_path: Path) -> None:
    check(SOURCES[source](tmp_path / "source"))


def test_all_checks_can_be_run_at_once_without_a_test_runner(tmp_path: Path) -> None:
    opened: list[CheckedSource] = []

    def open_source() -> AbstractContextManager[CheckedSource]:
        opened.append(files(tmp_path / str(len(opened))))
        return nullcontext(opened[-1])

    check_source(open_source)
    assert len(opened) == len(SOURCE_CHECKS)


def failures(broken: type[Broken], folder: Path) -> list[str]:
    found = []
    for check in SOURCE_CHECKS:
        checked = files(folder / check.__name__)
        assert isinstance(checked.source, FileSource)
        try:
            with named(check.__name__):
                check(checked._replace(source=broken(checked.source)))
        except ContractBroken as error:
            found.append(error.check)
    return found


def test_the_whole_source_that_broken_ones_derive_from_is_not_caught(tmp_path: Path) -> None:
    assert failures(Broken, tmp_path) == []


@pytest.mark.parametrize("broken", CAUGHT_BY, ids=lambda broken: broken.__name__)
def test_a_broken_promise_is_caught(broken: type[Broken], tmp_path: Path) -> None:
    assert CAUGHT_BY[broken] in failures(broken, tmp_path)


def test_every_check_catches_something() -> None:
    assert {check.__name__ for check in SOURCE_CHECKS} == set(CAUGHT_BY.values())


def test_every_check_that_is_written_is_listed() -> None:
    written = {
        function
        for name, function in inspect.getmembers(sources, inspect.isfunction)
        if function.__module__ == sources.__name__ and not name.startswith("_") and function is not check_source
    }
    assert written == set(SOURCE_CHECKS)
