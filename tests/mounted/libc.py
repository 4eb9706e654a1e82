"""System calls that Python's os module has no name for."""

import ctypes
import os
from pathlib import Path

AT_FDCWD = -100
RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT = 1, 2, 4
FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE = 1, 2


def renameat2(old: Path | bytes, new: Path | bytes, flags: int) -> None:
    _call("renameat2", AT_FDCWD, os.fsencode(old), AT_FDCWD, os.fsencode(new), flags)


def fallocate(descriptor: int, mode: int, offset: int, length: int) -> None:
    """fallocate(2) itself, without the fallback that posix_fallocate(3) has."""
    _call("fallocate", descriptor, mode, ctypes.c_long(offset), ctypes.c_long(length))


def getdents(folder: int, length: int) -> bytes:
    """What one getdents64(2) with a buffer of this length answers."""
    buffer = ctypes.create_string_buffer(length)
    told = ctypes.CDLL(None, use_errno=True).getdents64(folder, buffer, ctypes.c_size_t(length))
    if told < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return buffer.raw[:told]


def _call(name: str, *arguments: object) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
