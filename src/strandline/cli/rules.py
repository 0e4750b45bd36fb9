"""`strandline rules`: list and show rules, test them on a file, and say why something was or was not found."""

import typer

from strandline.cli.lazy_commands import LazyCommand, lazy_group

COMMANDS = (
    LazyCommand("list", "rules_list:list_rules", "List the rules."),
    LazyCommand("show", "rules_show:show", "Show a rule in full: expression, conditions, allow-lists and examples."),
    LazyCommand("test", "rules_test:run_rules", "Run the rules on a file, and show what they find and dismiss."),
    LazyCommand("why", "rules_why:why", "Say why something was or was not found on a line of a file."),
)

app = typer.Typer(
    help="Rules: list, show, test on a file, and why something was or was not found.",
    no_args_is_help=True,
    cls=lazy_group(*COMMANDS),
)
