"""A program of a turn that tries everything that could change its context; prints what came of each try, as JSON.

    python -m tests.mounted.context_attacker CONTEXT WORKSPACE

CONTEXT has the file `file`, the folder `folder` with `below` in it, and the link `link` to `file`.
"""

import ctypes
import errno
import fcntl
import itertools
import json
import mmap
import os
import socket
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

RACES = 10_000
FS_IOC_SETFLAGS = 0x40086602
AT_EMPTY_PATH = 0x1000
_libc = ctypes.CDLL(None, use_errno=True)


def outcome(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    except ValueError:
        return "ValueError"
    return "done"


def opening(path: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """Every way to open for writing."""
    more = {"CREAT": os.O_CREAT, "TRUNC": os.O_TRUNC, "APPEND": os.O_APPEND, "NOFOLLOW": os.O_NOFOLLOW}
    for access, some in itertools.product((os.O_WRONLY, os.O_RDWR), range(len(more) + 1)):
        for names in itertools.combinations(more, some):
            flags = access | sum(more[name] for name in names)
            yield f"open {access} {' '.join(names)}", partial(os.open, path, flags)
    yield "open read and truncate", lambda: os.open(path, os.O_RDONLY | os.O_TRUNC)
    yield "open direct", lambda: os.open(path, os.O_WRONLY | os.O_DIRECT)


def changing(context: Path, work: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """Every change of a name or of attributes."""
    file, folder, link = context / "file", context / "folder", context / "link"
    mine = work / "mine"
    for path in (file, folder, link):
        yield f"chown {path.name}", partial(os.chown, path, 4711, 4711, follow_symlinks=False)
        yield f"utime {path.name}", partial(os.utime, path, (1, 1), follow_symlinks=False)
        yield f"rename {path.name} inside", partial(os.rename, path, context / "other")
        yield f"rename {path.name} out", partial(os.rename, path, work / "stolen")
        yield f"replace {path.name}", partial(os.rename, mine, path)
    for path in (file, folder):
        yield f"chmod {path.name}", partial(os.chmod, path, 0o777)
        yield f"setxattr {path.name}", partial(os.setxattr, path, "user.a", b"x")
        yield f"removexattr {path.name}", partial(os.removexattr, path, "user.a")
    for flags in (1, 2, 4):
        yield f"renameat2 {flags}", partial(_renameat2, file, folder / "below", flags)
    yield "truncate", lambda: os.truncate(file, 0)
    yield "unlink", lambda: os.unlink(file)
    yield "unlink link", lambda: os.unlink(link)
    yield "rmdir", lambda: os.rmdir(folder)
    yield "mkdir", lambda: os.mkdir(context / "new")
    yield "mkdir below", lambda: os.mkdir(folder / "new")
    yield "symlink", lambda: os.symlink("file", context / "new")
    yield "link in", lambda: os.link(mine, context / "new")
    yield "link inside", lambda: os.link(file, context / "new")
    yield "mkfifo", lambda: os.mkfifo(context / "new")
    yield "mknod", lambda: os.mknod(context / "new", stat.S_IFREG | 0o600)
    yield "create", lambda: os.open(context / "new", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    yield "tmpfile", lambda: os.open(folder, os.O_TMPFILE | os.O_WRONLY)
    yield "bind", lambda: socket.socket(socket.AF_UNIX).bind(os.path.relpath(context / "new"))


def by_descriptor(context: Path, work: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """What an open file or folder could be used for."""
    file = os.open(context / "file", os.O_RDONLY)
    path = os.open(context / "file", os.O_PATH)
    folder = os.open(context / "folder", os.O_RDONLY)
    mine = os.open(work / "mine", os.O_RDWR)
    for held in (file, path):
        for flags in (os.O_WRONLY, os.O_RDWR, os.O_RDWR | os.O_TRUNC):
            yield f"reopen {flags}", partial(os.open, f"/proc/self/fd/{held}", flags)
        yield "chmod by descriptor", partial(os.chmod, f"/proc/self/fd/{held}", 0o777)
        yield "link by descriptor", partial(_linkat, held, context / "new")
    yield "create by descriptor", lambda: os.open("new", os.O_CREAT | os.O_WRONLY, dir_fd=folder)
    yield "unlink by descriptor", lambda: os.unlink("below", dir_fd=folder)
    yield "fchmod", lambda: os.fchmod(file, 0o777)
    yield "fchown", lambda: os.fchown(file, 4711, 4711)
    yield "futimens", lambda: os.utime(file, (1, 1))
    yield "ftruncate", lambda: os.ftruncate(file, 0)
    yield "write", lambda: os.write(file, b"x")
    yield "pwrite", lambda: os.pwrite(file, b"x", 0)
    yield "pwritev", lambda: os.pwritev(file, [b"x"], 0)
    yield "posix_fallocate", lambda: os.posix_fallocate(file, 0, 10)
    yield "copy_file_range", lambda: os.copy_file_range(mine, file, 1, 0, 0)
    yield "sendfile", lambda: os.sendfile(file, mine, 0, 1)
    yield "mmap", lambda: mmap.mmap(file, 4, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    yield "mprotect", lambda: _mprotect(file)
    yield "ioctl", lambda: fcntl.ioctl(file, FS_IOC_SETFLAGS, b"\x10\0\0\0\0\0\0\0")
    yield "open by handle", lambda: os.open(f"/proc/self/fd/{path}/../file", os.O_WRONLY)
    private = mmap.mmap(file, 4, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
    private[:4] = b"mine"  # allowed, and nobody else's


def _renameat2(old: Path, new: Path, flags: int) -> None:
    _checked(_libc.renameat2(-100, os.fsencode(old), -100, os.fsencode(new), flags))


def _linkat(descriptor: int, new: Path) -> None:
    _checked(_libc.linkat(descriptor, b"", -100, os.fsencode(new), AT_EMPTY_PATH))


def _mprotect(descriptor: int) -> None:
    _libc.mmap.restype = ctypes.c_void_p
    address = _libc.mmap(None, 4096, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    _checked(_libc.mprotect(ctypes.c_void_p(address), 4096, mmap.PROT_READ | mmap.PROT_WRITE))


def _checked(answer: int) -> None:
    if answer:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def race(context: Path, work: Path) -> dict[str, int]:
    """Open a path for writing, again and again, that is made to lead into the context and back meanwhile."""
    path, own, lead = work / "path", work / "own", work / "lead"
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            own.write_text("own")
            os.rename(own, path)
            os.symlink(context / "file", lead)
            os.rename(lead, path)

    swapping = threading.Thread(target=swap)
    swapping.start()
    came: dict[str, int] = {}

    def attempt() -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC)
        os.write(descriptor, b"overwritten")
        os.close(descriptor)

    try:
        for _ in range(RACES):
            how = outcome(attempt)
            came[how] = came.get(how, 0) + 1
    finally:
        stop.set()
        swapping.join()
    return came


def main() -> None:
    context, work = Path(sys.argv[1]), Path(sys.argv[2])
    (work / "mine").write_text("mine")
    tries = itertools.chain(
        opening(context / "file"), opening(context / "link"), changing(context, work), by_descriptor(context, work)
    )
    came = [(name, outcome(attempt)) for name, attempt in tries]
    print(json.dumps({"tries": came, "race": race(context, work)}))


if __name__ == "__main__":
    main()
