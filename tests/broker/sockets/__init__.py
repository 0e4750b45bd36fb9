"""Tests of what lies between sockets and sessions."""
