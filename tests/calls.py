"""The calls that test files make: what they check is read out of them, so that no list of it can be wrong."""

import ast
from pathlib import Path


def strings_in_calls(file: Path, function: str) -> set[str]:
    """Return the texts that a file gives to a function or method of a name."""
    calls = (node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call))
    asked = (call for call in calls if ast.unparse(call.func).rpartition(".")[2] == function)
    return {
        argument.value
        for call in asked
        for argument in call.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    }
