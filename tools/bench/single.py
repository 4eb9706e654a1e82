"""Single operations, each many times in a row from one process; what they tell is the time of one."""

import ctypes
import mmap
import os
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import chdir, closing, contextmanager
from pathlib import Path
from typing import TypeVar

from tools.bench.material import Size
from tools.bench.meter import Spent, spent
from tools.bench.sides import Side

SMALL, LARGE = 4096, 1 << 20
LISTINGS = 10
_AT_FDCWD = -100
_AT_STATX_FORCE_SYNC = 0x2000
_STATX_BASIC_STATS = 0x7FF
_libc = ctypes.CDLL(None, use_errno=True)

T = TypeVar("T")


def operations(side: Side, size: Size) -> Iterator[tuple[str, Spent]]:
    """Do them all in a side's folder, which is left empty; gives the name of each, and what one of it took."""
    place = side.place / "single"
    place.mkdir()
    with chdir(place):  # names alone: the way to a turn's folder is longer than that to a plain one
        yield from _on_names(side, size.single_files)
        yield from _on_content(side, Path("content"), size.single_bytes)
    place.rmdir()


def _on_names(side: Side, count: int) -> Iterator[tuple[str, Spent]]:
    paths = [f"{number}" for number in range(count)]
    moved = [f"moved-{number}" for number in range(count)]
    listings = ["."] * LISTINGS
    yield "create 1 KiB file", _each(side, _create, paths)
    if os.geteuid() == 0:  # else nobody can make it cold
        side.make_cold()
        yield "stat cold", _each(side, os.stat, paths)
        side.make_cold()
        yield "open-read-close cold", _each(side, _read, paths)
    _each(side, os.stat, paths)
    yield "stat warm", _each(side, os.stat, paths)
    _each(side, _read, paths)
    yield "open-read-close", _each(side, _read, paths)
    yield "getattr", _each(side, ask_for_attributes, paths)
    yield "readdir, each entry", _each(side, os.listdir, listings).each(count)
    yield "rename", _each(side, lambda pair: os.rename(*pair), list(zip(paths, moved, strict=True)))
    yield "unlink", _each(side, os.unlink, moved)


def _create(path: str) -> None:
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    os.write(descriptor, b"x" * 1024)
    os.close(descriptor)


def _read(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.read(descriptor, 1024)
    os.close(descriptor)


def ask_for_attributes(path: str) -> None:
    """stat that is answered by the filesystem, whatever the kernel knows (statx(2), AT_STATX_FORCE_SYNC)."""
    answer = ctypes.create_string_buffer(256)
    if _libc.statx(_AT_FDCWD, os.fsencode(path), _AT_STATX_FORCE_SYNC, _STATX_BASIC_STATS, answer):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)


def _on_content(side: Side, path: Path, length: int) -> Iterator[tuple[str, Spent]]:
    data = memoryview(os.urandom(LARGE))
    large, small = range(0, length, LARGE), range(0, length, SMALL)
    scattered = list(small)
    random.Random(7).shuffle(scattered)
    for name, block, offsets in (("write 1 MiB", LARGE, large), ("write 4 KiB", SMALL, small)):
        with _opened(path, os.O_CREAT | os.O_EXCL | os.O_RDWR) as descriptor:
            yield name, _each(side, _writing(descriptor, data[:block]), offsets)
        path.unlink()
    with _opened(path, os.O_CREAT | os.O_EXCL | os.O_RDWR) as descriptor:
        _each(side, _writing(descriptor, data), large)
        yield "write random 4 KiB", _each(side, _writing(descriptor, data[:SMALL]), scattered)
        yield "read 1 MiB", _each(side, _reading(descriptor, LARGE), large)
        yield "read 4 KiB", _each(side, _reading(descriptor, SMALL), small)
        yield "read random 4 KiB", _each(side, _reading(descriptor, SMALL), scattered)
        with closing(mmap.mmap(descriptor, length, prot=mmap.PROT_READ)) as mapped:
            yield "mmap, each 4 KiB", _each(side, lambda at: mapped[at], scattered)
    path.unlink()


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _writing(descriptor: int, data: memoryview) -> Callable[[int], object]:
    return lambda offset: os.pwrite(descriptor, data, offset)


def _reading(descriptor: int, block: int) -> Callable[[int], object]:
    return lambda offset: os.pread(descriptor, block, offset)


def _each(side: Side, operation: Callable[[T], object], arguments: Iterable[T]) -> Spent:
    """Do an operation with each argument; answers what one of them took."""
    each = list(arguments)

    def all_of_them() -> None:
        for argument in each:
            operation(argument)

    return spent(side, all_of_them).each(len(each))
