"""What the command `fusefs` starts with: `fusefs run` goes its own, short way; every other command imports at ease."""

import os
import sys

from tools.standard_output import fill, guarded


def main() -> None:
    """Run the command line of this process."""
    words = sys.argv[1:]
    socket, rest = _ahead(words)
    if rest[:1] == ["run"]:
        from tools.cli_run import main as run
        from tools.held import FAILED

        with guarded(FAILED):
            status = run(rest[1:], socket)
            if sys.stdout is not None:  # None where it was closed before we began
                sys.stdout.flush()
        os._exit(status)  # all is closed; to take the interpreter down in order is of no use, and takes time
    fill()
    from tools.cli import main as others

    with guarded(1):  # Exit.FAILED, which is not imported for this
        others()


def _ahead(words: list[str]) -> tuple[str | None, list[str]]:
    """The options of all commands that stand before the command's name, and what follows."""
    socket = None
    while words and words[0].startswith("-"):
        name, given, value = words[0].partition("=")
        words = words[1:]
        if name == "--socket":
            socket, words = (value, words) if given else (words[0] if words else None, words[1:])
        elif name != "--json":
            return None, []
    return socket, words


if __name__ == "__main__":
    main()
