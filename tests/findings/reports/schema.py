"""The schema of SARIF, and a check against it."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]

SCHEMA = Path(__file__).parents[2] / "fixtures" / "sarif" / "sarif-schema-2.1.0.json"


Invalid = jsonschema.ValidationError


@cache
def _validator() -> Any:  # noqa: ANN401 - jsonschema ships no types
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    return jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())


def check_sarif(text: str) -> dict[str, Any]:
    """Return a SARIF log that is valid under the published schema."""
    log = json.loads(text)
    assert isinstance(log, dict)
    _validator().validate(log)
    return log
