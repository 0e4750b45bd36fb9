"""One configuration for every command: flags, then the environment, then `strandline.toml`, then defaults.

**Promise.** A value always comes from the first of these that gives it, and `resolve` says which. A key that no command
has is an error with the nearest name; a value of a wrong type is an error with the file, the line, the value and what
is expected.

**Parts.** `keys`: the sections and keys that exist, read from the JSON schema that is shipped (`schema.json`), which is
derived from the options of the commands. `file`: `strandline.toml`, found upward from a folder. `settings`: one section
out of file, environment and defaults. `passwords`: passwords inside values, found and masked.

**Secrets.** A value may be a reference, `{ env = "NAME" }` or `{ file = "path" }`. What a reference gives, the value of
a secret key and a password inside a value are never shown, not in errors or help either. A password in the file is
refused.

**Trade-offs.** Paths in the file are relative to its folder, so that a command does the same in every folder below. A
list replaces the list of the level below; nothing is merged.
"""

from strandline.config.errors import ConfigInvalid
from strandline.config.file import FILE_NAME, ConfigFile, FileValue, find_file, read_file
from strandline.config.keys import Declared, Key, Kind, declared, schema_text
from strandline.config.passwords import masked
from strandline.config.settings import Setting, Source, environment_name, resolve

__all__ = [
    "FILE_NAME",
    "ConfigFile",
    "ConfigInvalid",
    "Declared",
    "FileValue",
    "Key",
    "Kind",
    "Setting",
    "Source",
    "declared",
    "environment_name",
    "find_file",
    "masked",
    "read_file",
    "resolve",
    "schema_text",
]
