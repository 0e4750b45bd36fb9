"""The schema that is shipped: it has the keys of the commands, and says of a file what commands say."""

import json
import tomllib
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped] # ships no type information

from strandline.config import ConfigInvalid, declared, read_file, schema_text
from strandline.config.keys import format_schema, parse_schema
from tools.config_schema import SCHEMA, derived


def test_the_schema_is_that_of_the_commands_options() -> None:
    assert SCHEMA.read_text() == format_schema(derived()), "run `python -m tools.config_schema`"


def test_a_schema_is_read_as_it_was_written() -> None:
    assert format_schema(parse_schema(json.loads(schema_text()))) == schema_text()


def test_every_command_has_its_section() -> None:
    assert {"", "scan", "serve", "fold", "queue", "journal", "pipeline", "lease", "findings"} <= set(declared())


def test_a_variable_stands_for_keys_of_one_name() -> None:
    names: dict[str, set[str]] = {}
    for keys in declared().values():
        for key in keys.values():
            for variable in key.environment:
                # `[ui]` has a certificate of its own, so that of NATS has a prefix there.
                names.setdefault(variable, set()).add(key.name.removeprefix("nats-"))
    assert {variable: found for variable, found in names.items() if len(found) > 1} == {}


@pytest.mark.parametrize(
    "text",
    [
        'state = "a"\n[scan]\npaths = ["src"]\ngit = true\nmax-file-bytes = 5\n',
        '[scan]\nstate = { env = "HOME" }\n',
        '[scan]\npath = ["src"]\n',
        "[scna]\n",
        "[scan]\ngit = 1\n",
        "[scan]\nmax-file-bytes = 0\n",
        '[fold]\nmode = "mirrow"\n',
        '[scan]\nstate = { env = "HOME", file = "x" }\n',
    ],
)
def test_an_editor_that_knows_the_schema_says_what_commands_say(text: str, tmp_path: Path) -> None:
    path = tmp_path / "strandline.toml"
    path.write_text(text)
    is_valid = Draft202012Validator(json.loads(schema_text())).is_valid(tomllib.loads(text))
    try:
        read_file(path, {"HOME": "x"})
    except ConfigInvalid:
        assert not is_valid
    else:
        assert is_valid
