"""The servers that tests of coordination share."""

from tests.servers_etcd import etcd_prefix, etcd_server

__all__ = ["etcd_prefix", "etcd_server"]
