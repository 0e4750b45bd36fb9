"""SQL statements by name, from the `.sql` files of a dialect.

    <dialect>/<noun>.sql      -- name: upsert
                              INSERT INTO …

A name line opens a statement, which ends where the next one opens. Files are read once.
"""

import re
from functools import cache
from importlib.resources import files

from strandline.errors import InvalidInput
from strandline.pipeline.sql.migrations import Dialect

_NAME = re.compile(r"^-- name: ([a-z0-9_]+)$", re.MULTILINE)


def parse_statements(text: str) -> dict[str, str]:
    """Return the statements of one file by name."""
    parts = _NAME.split(text)
    names, bodies = parts[1::2], [body.strip() for body in parts[2::2]]
    if len(set(names)) != len(names) or not all(bodies):
        raise InvalidInput("each statement needs a name of its own and a body")
    return dict(zip(names, bodies, strict=True))


@cache
def statements(dialect: Dialect, noun: str) -> dict[str, str]:
    """Return the statements of `<dialect>/<noun>.sql`."""
    return parse_statements((files("strandline.pipeline.sql") / dialect / f"{noun}.sql").read_text("utf-8"))
