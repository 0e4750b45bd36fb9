"""`strandline serve` as typer lists it; `entry` calls `serve_run` directly."""

from typing import Any

import typer
from typer.core import TyperCommand

from strandline.cli.serve_run import run


class ServeCommand(TyperCommand):
    """A command that reads its own arguments: Go's `-js` is one flag, not two."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - typer's copy of click is private
        """Keep all arguments as they are."""
        ctx.args = args = list(args)
        return args

    def invoke(self, ctx: Any) -> None:  # noqa: ANN401 - typer's copy of click is private
        """Do what the arguments ask for."""
        options = ctx.find_root().params
        code = run(ctx.args, use_file=not options.get("no_config"), config=options.get("config"))
        if code:
            raise typer.Exit(code)


serve = ServeCommand(
    "serve",
    help="Run the broker as a server, with nats-server's flags and configuration file.\n\n"
    "`strandline serve -h` lists the flags; docs/broker.md has the configuration file's keys.",
)
