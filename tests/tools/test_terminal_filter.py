"""The filter of system calls, run by an interpreter of classic BPF (linux/filter.h) as the kernel would."""

import errno
import struct

import pytest

from tools.terminal_filter import IOCTL, program

ALLOWED, REFUSED = 0x7FFF0000, 0x00050000 | errno.EPERM
X86_64, ARM64 = 0xC000003E, 0xC00000B7
TIOCSTI, TIOCLINUX, TCGETS = 0x5412, 0x541C, 0x5401


def judge(filter_: bytes, arch: int, number: int, request: int) -> int:
    """What the filter answers to a system call, on a machine that is little-endian."""
    data = struct.pack("<iIQ6Q", number, arch, 0, 0, request, 0, 0, 0, 0)
    lines = list(struct.iter_unpack("=HBBI", filter_))
    at, accumulator = 0, 0
    while True:
        code, if_true, if_false, value = lines[at]
        match code:
            case 0x20:
                (accumulator,) = struct.unpack_from("<I", data, value)
                at += 1
            case 0x15:
                at += 1 + (if_true if accumulator == value else if_false)
            case 0x06:
                return int(value)
            case _:
                raise AssertionError(f"instruction {code:#x} is not understood")


@pytest.mark.parametrize(("arch", "number"), [(arch, number) for arch in IOCTL for number in IOCTL[arch]])
def test_typing_into_the_terminal_is_refused_on_every_architecture(arch: int, number: int) -> None:
    # A 32-bit number is what the kernel has, too.
    number = struct.unpack("<i", struct.pack("<I", number))[0]

    assert judge(program(), arch, number, TIOCSTI) == REFUSED
    assert judge(program(), arch, number, TIOCLINUX) == REFUSED
    assert judge(program(), arch, number, TCGETS) == ALLOWED


def test_bits_that_the_kernel_does_not_look_at_do_not_help() -> None:
    assert judge(program(), X86_64, 16, TIOCSTI | 1 << 32) == REFUSED


@pytest.mark.parametrize(("arch", "number"), [(X86_64, 0), (X86_64, 29), (ARM64, 16), (0x1234, 16)])
def test_other_calls_are_none_of_its_business(arch: int, number: int) -> None:
    assert judge(program(), arch, number, TIOCSTI) == ALLOWED
