"""s3rver, a real S3 server that ignores conditions: it is found out and refused."""

import subprocess
from pathlib import Path

import pytest

from strandline.objects import ConditionsIgnored, open_objects
from tests.js_packages import js_packages
from tests.ports import free_ports
from tests.waiting import PATIENCE_S

FOLDER = Path(__file__).parent / "js"
KEY = "S3RVER"


@pytest.mark.long
@pytest.mark.timeout(int(2 * PATIENCE_S))
def test_a_server_that_ignores_conditions_is_refused(tmp_path: Path) -> None:
    program = js_packages(FOLDER) / ".bin" / "s3rver"
    (port,) = free_ports(1)
    command = [str(program), "-d", str(tmp_path), "-a", "127.0.0.1", "-p", str(port), "--configure-bucket", "shown"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            assert any("listening" in line for line in server.stdout)
            environ = {
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
                "AWS_ACCESS_KEY_ID": KEY,
                "AWS_SECRET_ACCESS_KEY": KEY,
                "AWS_REGION": "us-east-1",
            }
            with pytest.raises(ConditionsIgnored, match="replaced an object") as caught:
                open_objects("s3://shown/x", conditional=True, environ=environ)
            assert "SeaweedFS" in (caught.value.hint or "")
            left = open_objects("s3://shown/x", environ=environ)
            assert list(left.list("strandline-probe/")) == []
            left.close()
        finally:
            server.kill()
