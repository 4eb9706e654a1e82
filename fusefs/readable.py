"""Whether a descriptor has something to read, asked without waiting."""

import select


def is_readable(descriptor: int) -> bool:
    """Whether a read would answer at once; of a pidfd, whether the process has ended (pidfd_open(2)).

    By poll(2), and not select(2), which knows no descriptor above 1,023.
    """
    asked = select.poll()
    asked.register(descriptor, select.POLLIN)
    return bool(asked.poll(0))
