"""Run in a bare environment: import a part, run its quickstart, and print which modules were imported, or the error.

    python -I probe.py NAME=MODULE[,MODULE…][:SCRIPT] …

Each part has a process of its own, forked when nothing is imported but numpy and pyarrow, which every installation has
and which take longer than the rest. A line for each: the name, and JSON of
`{"modules": […]}`, `{"missing": [package, extra, hint]}` or `{"failed": traceback}`.
"""

import importlib
import json
import os
import runpy
import sys
import tempfile
import traceback

_ALWAYS_INSTALLED = ("numpy", "pyarrow")


def attempt(modules: list[str], script: str) -> dict[str, object]:
    """Import modules and run a script in an empty folder."""
    try:
        for name in modules:
            importlib.import_module(name)
        if script:
            with tempfile.TemporaryDirectory() as folder:
                os.chdir(folder)
                try:
                    runpy.run_path(script, run_name="__main__")
                finally:
                    os.chdir("/")
    except ModuleNotFoundError as error:
        extra = getattr(error, "extra", None)
        if extra is None:
            return {"failed": traceback.format_exc()}
        return {"missing": [error.name, extra, getattr(error, "hint", None)]}
    except BaseException:  # noqa: BLE001 - told to the test
        return {"failed": traceback.format_exc()}
    return {"modules": sorted({name.partition(".")[0] for name in sys.modules})}


def main() -> None:
    """Try every part in a process of its own."""
    for name in _ALWAYS_INSTALLED:
        importlib.import_module(name)
    for argument in sys.argv[1:]:
        name, _, rest = argument.partition("=")
        listed, _, script = rest.partition(":")
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            told = attempt(listed.split(","), script)
            print(name, json.dumps(told), flush=True)  # noqa: T201 - the answer
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
