"""Options take plain values as typer would make them, without asking pydantic."""

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from strandline.cli.plain_values import take_plain_values


class Kind(Enum):
    """A choice."""

    A = "a"
    B = "b"


def command(taken: list[Any]) -> typer.Typer:
    app = typer.Typer()

    @app.command()
    def run(  # noqa: PLR0913, PLR0917 - one of each
        paths: Annotated[list[Path] | None, typer.Argument()] = None,
        text: str = "plain",
        file: Path | None = None,
        there: Annotated[Path | None, typer.Option(exists=True)] = None,
        names: Annotated[list[str] | None, typer.Option("--name")] = None,
        count: Annotated[int, typer.Option(min=1)] = 3,
        share: float = 0.5,
        kind: Kind | None = None,
        kinds: Annotated[list[Kind] | None, typer.Option("--kinds")] = None,
        flag: bool = False,
        whether: bool | None = None,
    ) -> None:
        taken.append((paths, text, file, there, names, count, share, kind, kinds, flag, whether))

    return app


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["a", "b/c", "--text", "", "--file", "x", "--name", "1", "--name", "2"],
        ["--count", "7", "--share", "1", "--kind", "b", "--kinds", "a", "--kinds", "b", "--flag", "--whether"],
        ["--there", "."],
        ["--there", "/no/such/file"],
        ["--count", "0"],
        ["--count", "many"],
        ["--kind", "c"],
        ["--no-whether", "--text", "7"],
    ],
)
def test_values_and_errors_are_typers(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    results: list[Any] = []
    said = []
    for is_plain in (False, True):
        taken: list[Any] = []
        app = command(taken)
        made = get_command(app)
        if is_plain:
            take_plain_values(made.params)
        monkeypatch.setattr("typer.testing._get_command", lambda _, made=made: made)
        ran = CliRunner().invoke(app, words)
        results.append(taken)
        said.append((ran.exit_code, ran.stdout, ran.stderr))
    assert results[0] == results[1]
    assert said[0] == said[1]
    assert results[0] or said[0][0] == 2


def test_a_typer_without_the_hook_is_left_alone() -> None:
    class Older:
        name = "older"

    older = Older()
    take_plain_values([older])
    assert vars(older) == {}
