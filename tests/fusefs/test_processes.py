"""What is told of processes: this one, and a thread of the kernel, which not every container shows."""

import os
from pathlib import Path

import pytest

from fusefs.processes import Facts, KernelThread, Process

PF_KTHREAD = 0x00200000


def test_a_thread_of_the_kernel_is_none_that_can_be_held(monkeypatch: pytest.MonkeyPatch) -> None:
    read = Path.read_bytes

    def of_the_kernel(path: Path) -> bytes:
        data = read(path)
        if path.name != "stat":
            return data
        name, fields = data[: data.rindex(b")") + 2], data[data.rindex(b")") + 2 :].split()
        fields[6] = b"%d" % (int(fields[6]) | PF_KTHREAD)
        return name + b" ".join(fields) + b"\n"

    assert not Facts.of(os.getpid()).is_kernel
    monkeypatch.setattr(Path, "read_bytes", of_the_kernel)
    assert Facts.of(os.getpid()).is_kernel
    with pytest.raises(KernelThread):
        Process(os.getpid())
