"""`strandline queue`: serving, and how far groups are."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from strandline.queue import Queue
from tests.cli.runs import run_command


def test_status_tells_how_far_groups_are_of_a_folder_and_of_what_is_served() -> None:
    with TemporaryDirectory(prefix="strandline-") as place:
        folder = Path(place) / "q"
        with Queue.open(folder) as queue:
            queue.put_many([b"a", b"b"])
            assert run_command("queue", "status", folder).code == 1, "it is locked, and not served"
            with queue.serve() as server:
                assert run_command("queue", "status", folder).out == "no groups yet\n"
                next(queue.take("workers")).ack()
                expected = {"group": "workers", "acked_until": 1, "in_flight": 0, "waiting": 0, "backlog": 1}
                for asked in (folder, server.address):
                    assert json.loads(run_command("queue", "status", asked, "--json").out) == expected
        assert json.loads(run_command("queue", "status", folder, "--json").out) == expected
        assert "workers" in run_command("queue", "status", folder).out


def test_what_is_no_queue_is_refused_and_nothing_is_created(tmp_path: Path) -> None:
    ran = run_command("queue", "status", tmp_path / "nothing")
    assert ran.code == 1
    assert "there is no queue here" in ran.err
    assert not (tmp_path / "nothing").exists()
    assert run_command("queue", "serve", tmp_path / "q", "--deliveries-max", "-1").code == 1
    assert not (tmp_path / "q").exists()
