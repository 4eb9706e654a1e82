"""Mounts of ours that no daemon serves."""

import ctypes
import os
from pathlib import Path

import pytest

from tools import host

needs_mount = pytest.mark.skipif(
    os.geteuid() != 0 or host.device() is not None or host.mount_right() is not None,
    reason="mounts without a daemon, as only root can",
)


def mount_without_daemon(mountpoint: Path) -> int:
    """A mount of ours whose device nobody reads. Closing the descriptor is what killing the daemon does."""
    device = os.open(host.DEVICE, os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mount(b"fusefs", os.fsencode(mountpoint), b"fuse.fusefs", 0, options) == 0
    return device
