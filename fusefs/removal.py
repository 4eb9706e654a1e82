"""Removing a tree that nobody needs any more, in a process of its own so that nobody waits."""

import logging
import os
from pathlib import Path

import trio

log = logging.getLogger(__name__)


async def removed(tree: Path) -> bool:
    """Whether a tree could be removed; the log tells why not."""
    commands: list[list[str | Path]] = [["rm", "-rf", "--one-file-system", "--", tree]]
    if os.geteuid() != 0:  # a turn may have taken the owner's right to its folders, which stops nobody but him
        commands.insert(0, ["chmod", "-R", "u+rwX", "--", tree])
    done = None
    try:
        for command in commands:
            done = await trio.run_process(command, check=False, capture_stderr=True)
    except OSError as error:  # no descriptors or processes left for now
        log.error("cannot remove %s for now: %s", tree, error)
        return False
    if done is not None and done.returncode:
        log.error("cannot remove %s for now: %s", tree, done.stderr.decode(errors="replace").strip())
        return False
    return True
