"""`strandline replica`: SQLite databases, shipped to object storage as they commit."""

import typer

from strandline.cli.lazy_commands import LazyCommand, lazy_group

COMMANDS = (
    LazyCommand("run", "replica_run:run", "Replicate a database until SIGTERM, or for as long as a command runs."),
    LazyCommand(
        "restore", "replica_restore:restore", "Write a database as it was after a transaction, or at a time, to a file."
    ),
    LazyCommand("follow", "replica_follow:follow", "Keep a local copy of a replica current, until SIGTERM."),
    LazyCommand(
        "node",
        "replica_node:node",
        "Lead or follow a database until SIGTERM: then stop writes, ship the rest, and let another node lead.",
    ),
    LazyCommand("proxy", "replica_proxy:proxy", "Route HTTP requests: reads to followers, writes to the leader."),
    LazyCommand(
        "status", "replica_files:status", "Show the last transaction of a replica, what it holds, and its nodes."
    ),
    LazyCommand("snapshots", "replica_files:snapshots", "List the whole databases of a replica."),
    LazyCommand("verify", "replica_files:verify", "Read every file of a replica, and say what is damaged or missing."),
    LazyCommand(
        "explain",
        "replica_explain:explain",
        "Estimate what a replica uploads, keeps and costs at the present rate of commits, for each database.",
    ),
    LazyCommand("compact", "replica_maintain:compact", "Merge the files of a replica, or write a snapshot."),
    LazyCommand(
        "rotate-key",
        "replica_rotate_key:rotate_key",
        "Encrypt every file of a replica that has an older key under the first key of the file of keys.",
    ),
    LazyCommand("prune", "replica_maintain:prune", "Remove the files that a retention policy does not keep."),
)

app = typer.Typer(
    help="Replicas: SQLite, shipped to object storage as it commits.", no_args_is_help=True, cls=lazy_group(*COMMANDS)
)
