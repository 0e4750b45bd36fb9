"""`strandline journal`: inspect, dump, verify, repair and measure journals, and a demonstration."""

import typer

from strandline.cli.lazy_commands import LazyCommand, lazy_group

COMMANDS = (
    LazyCommand(
        "inspect",
        "journal_inspect:inspect",
        "Show what a journal holds: identity, offsets, segments, its writer, and what is torn or damaged.",
    ),
    LazyCommand("dump", "journal_dump:dump", "Print records, one per line; works beside a writer and changes nothing."),
    LazyCommand(
        "verify",
        "journal_verify:verify",
        "Read a whole journal, check every batch, and say what is wrong; exit code 3 where durable data is damaged.",
    ),
    LazyCommand(
        "repair",
        "journal_repair:repair",
        "Repair a damaged journal: show the plan, ask, carry it out. No writer may be active.",
    ),
    LazyCommand(
        "bench",
        "journal_bench:bench",
        "Measure appending and scanning in a new folder below PATH, which is removed afterwards.",
    ),
    LazyCommand(
        "demo",
        "journal_demo:demo",
        "Kill a writer in the middle of its work, and check that everything acknowledged is there.",
    ),
)

app = typer.Typer(help="Journals: segmented append logs in a folder.", no_args_is_help=True, cls=lazy_group(*COMMANDS))
