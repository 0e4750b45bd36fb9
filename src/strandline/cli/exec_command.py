"""The command of `--exec`: the application, started as a child."""

import shlex
import subprocess

from strandline.errors import InvalidInput


def start_command(command: str) -> "subprocess.Popen[bytes]":
    """Start a command; `InvalidInput` where it cannot be."""
    try:
        return subprocess.Popen(shlex.split(command))  # noqa: S603 - the user's own
    except (OSError, ValueError, IndexError) as error:
        hint = "give a program and its arguments as a shell would take them; for more use: sh -c '…'"
        raise InvalidInput(f"--exec {command!r} cannot be started: {error}", hint=hint) from error
