"""Tests of `strandline.alarms`."""
