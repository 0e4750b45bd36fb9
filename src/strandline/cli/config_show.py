"""`strandline config show`: each setting, its value and its source."""

import os
from typing import Annotated

import typer

from strandline.cli.configuration import config_file
from strandline.cli.output import AsJson, Record, emit_rows
from strandline.config import Setting, Source, declared, resolve
from strandline.errors import InvalidInput

Section = Annotated[str | None, typer.Argument(metavar="[SECTION]", help="The settings of one command alone.")]


def show(ctx: typer.Context, section: Section = None, as_json: AsJson = False) -> None:
    """Print every setting, its value, and where that comes from; secrets are hidden."""
    sections = [name for name in declared() if name]
    if section is not None and section not in sections:
        raise InvalidInput(f"there is no section {section!r}", hint=f"there are {', '.join(sections)}")
    options = ctx.find_root().params
    file = None if options.get("no_config") else config_file(options.get("config"))
    chosen = sections if section is None else [section]
    settings = (setting for name in chosen for setting in resolve(name, os.environ, file).values())
    emit_rows((_record(setting, as_json=as_json) for setting in settings), as_json=as_json)


def _record(setting: Setting, *, as_json: bool) -> Record:
    if as_json:
        return {
            "key": setting.key.label,
            "value": setting.shown,
            "source": setting.source.value,
            "place": setting.place or None,
        }
    from_ = setting.source.value if setting.source is Source.DEFAULT else setting.place
    return {"key": setting.key.label, "value": _text(setting.shown), "from": from_}


def _text(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)
