"""`strandline config schema`: the JSON schema of `strandline.toml`."""

from strandline.config import schema_text


def schema() -> None:
    """Print the JSON schema of strandline.toml, for editors."""
    print(schema_text(), end="")
