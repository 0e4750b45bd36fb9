"""The error of a configuration that cannot be used."""

from strandline.errors import InvalidInput


class ConfigInvalid(InvalidInput):
    """A configuration file, or a key in it, that cannot be used; `line` is 0 where the whole file is meant."""

    def __init__(self, path: str, line: int, key: str, problem: str, *, hint: str | None = None) -> None:
        place = f"{path}:{line}" if line else path
        super().__init__(f"{place}: {key}: {problem}" if key else f"{place}: {problem}", hint=hint)
        self.path = path
        self.line = line
        self.key = key
        self.problem = problem
