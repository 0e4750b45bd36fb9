"""Plain values of options, taken as they are: typer asks pydantic even about an option that is absent.

Importing pydantic and building a validator for each option of `scan` takes a tenth of a second, for texts, paths, lists
of them and absent values. Every other value goes to typer as ever.

Invariants: a value is what typer would make of it; a typer without these hooks is left alone.
"""

from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin

_HOOK = "_runtime_param"


def take_plain_values(params: Iterable[Any]) -> None:
    """Let parameters of a command take plain values without pydantic."""
    for param in params:
        if getattr(param, _HOOK, True) is None and hasattr(param, "type_descriptor"):
            setattr(param, _HOOK, _PlainValues(param))


class _PlainValues:
    """Stands for the coercion of one parameter; it makes the true one for a value that is not plain."""

    def __init__(self, param: Any) -> None:  # noqa: ANN401 - as above
        self._param = param
        self._annotation = param.type_descriptor.annotation
        self._info = param.type_descriptor.parameter_info

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:  # noqa: ANN401 - as above
        """Return the value of the parameter, as typer would."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if isinstance(self._annotation, type) and issubclass(self._annotation, Enum) and value == self._param.default:
            return self._annotation(value)
        if self._info.parser is None:
            if get_origin(self._annotation) is list and isinstance(value, list | tuple):
                (kind,) = get_args(self._annotation)
                if self._is_plain(kind, value):
                    return [self._made(kind, one, param, ctx) for one in value]
            elif self._is_plain(self._annotation, (value,)):
                return self._made(self._annotation, value, param, ctx)
        setattr(self._param, _HOOK, None)
        return self._param.get_runtime_param().coerce(value, param=param, ctx=ctx)

    def _is_plain(self, kind: Any, values: Any) -> bool:  # noqa: ANN401 - as above
        if kind in {int, float}:  # only the default is known to be within bounds
            return all(type(one) is kind and one == self._param.default for one in values)
        return kind in {str, Path} and all(isinstance(one, str | kind) for one in values)

    def _made(self, kind: Any, value: Any, param: Any, ctx: Any) -> Any:  # noqa: ANN401 - as above
        if kind is not Path:
            return value
        from typer._param_types import coerce_cli_path  # noqa: PLC0415 - there if the hook is

        return coerce_cli_path(Path(value), self._info, path_type=Path, param=param, ctx=ctx)
