"""Coordination in etcd: the driver is there, and says that nothing listens at this address."""

from strandline.errors import Unavailable
from strandline.pipeline.coordination.etcd_client import EtcdClient

told = ""
try:
    EtcdClient("127.0.0.1:1", timeout_s=0.1, connect_timeout_s=0.1).get(b"key")
except Unavailable as error:
    told = str(error)
assert "127.0.0.1:1" in told
