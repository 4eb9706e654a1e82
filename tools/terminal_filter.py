"""A filter of system calls that keeps a call from typing into its caller's terminal.

A program that has a terminal may put characters into that terminal's input (ioctl TIOCSTI, and TIOCLINUX on a
console): the shell that `fusefs run` was typed in would read them when the call is over. A session of its own would
prevent it, and would take Ctrl-C and job control away, so these two requests fail with EPERM instead. This is
what Flatpak does, too; Linux 6.2 and later can turn TIOCSTI off for all (`dev.tty.legacy_tiocsti`).

A program of classic BPF (linux/filter.h) over struct seccomp_data (linux/seccomp.h).
"""

import errno
import struct

REFUSED = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX (asm-generic/ioctls.h)
IOCTL = {
    # AUDIT_ARCH_* (linux/audit.h), with the numbers of ioctl(2) there
    0xC000003E: (16, 0x40000000 | 514),  # x86-64, and x32 on it
    0x40000003: (54,),  # i386, which x86-64 can run
    0xC00000B7: (29,),  # arm64
    0x40000028: (54,),  # arm
    0xC00000F3: (29,),  # riscv64
    0x80000016: (54,),  # s390x
}
MACHINES = ("x86_64", "aarch64", "riscv64", "s390x", "i686", "armv7l")
"""uname(2)'s names of the machines that the table is complete for."""

_NUMBER, _ARCH, _REQUEST = 0, 4, 24  # offsets in struct seccomp_data; the request is the second argument's low half
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06  # BPF_LD|BPF_W|BPF_ABS, BPF_JMP|BPF_JEQ|BPF_K, BPF_RET|BPF_K
_ALLOW = 0x7FFF0000
_REFUSE = 0x00050000 | errno.EPERM
_INSTRUCTION = struct.Struct("=HBBI")


def program(big_endian: bool = False) -> bytes:
    """The filter, as bubblewrap takes it from a descriptor.

    Only the low half of the request is looked at, as the kernel does (CVE-2019-10063).
    """
    request = _REQUEST + (4 if big_endian else 0)
    blocks = [_of_architecture(arch, numbers, request) for arch, numbers in IOCTL.items()]
    return b"".join(_INSTRUCTION.pack(*line) for block in blocks for line in block) + _ret(_ALLOW)


def _of_architecture(arch: int, numbers: tuple[int, ...], request: int) -> list[tuple[int, int, int, int]]:
    """For one architecture: go past the block where it is another one, allow what is no ioctl, look at the request."""
    ends = [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _REFUSE)]
    wanted = [(_EQUAL, len(REFUSED) - place, 0, asked) for place, asked in enumerate(REFUSED)]
    calls = [(_EQUAL, len(numbers) - place, 0, number) for place, number in enumerate(numbers)]
    body = [(_LOAD, 0, 0, _NUMBER), *calls, ends[0], (_LOAD, 0, 0, request), *wanted, *ends]
    return [(_LOAD, 0, 0, _ARCH), (_EQUAL, 0, len(body), arch), *body]


def _ret(value: int) -> bytes:
    return _INSTRUCTION.pack(_RETURN, 0, 0, value)
