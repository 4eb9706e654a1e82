"""A C compiler and linker in a workspace; what they make runs elsewhere, since the mount is noexec."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.mounted.compare import Places, run_in_both, same_tree

MAIN = '#include <stdio.h>\n#include "part.h"\nint main(void) { printf("%d\\n", part(20)); return 0; }\n'
PART = '#include "part.h"\nint part(int n) { return n * 2 + 2; }\n'


def write_sources(place: Path) -> None:
    (place / "main.c").write_text(MAIN)
    (place / "part.c").write_text(PART)
    (place / "part.h").write_text("int part(int n);\n")


def test_compile_archive_and_link(places: Places, tmp_path: Path) -> None:
    for place in places.both():
        write_sources(place)
    run_in_both(places, "gcc", "-O1", "-c", "main.c", "part.c")
    run_in_both(places, "ar", "rcsD", "libpart.a", "part.o")
    run_in_both(places, "gcc", "-o", "program", "main.o", "-L.", "-lpart")
    run_in_both(places, "gcc", "-shared", "-fPIC", "-Wl,--build-id=none", "-o", "libpart.so", "part.c")

    same_tree(places, ignore=lambda path: path == b"program")  # the linker may record its build id
    program = Path(shutil.copy2(places.workspace / "program", tmp_path))
    assert subprocess.run([program], capture_output=True, text=True, check=True).stdout == "42\n"


def test_make_rebuilds_only_what_changed(places: Places) -> None:
    makefile = "program: main.o part.o\n\tgcc -o $@ $^\n%.o: %.c part.h\n\tgcc -c $<\n"
    for place in places.both():
        write_sources(place)
        (place / "Makefile").write_text(makefile)

    assert run_in_both(places, "make").count("gcc") == 3
    assert "up to date" in run_in_both(places, "make")
    for place in places.both():
        for name in os.listdir(place):
            os.utime(place / name, (1_000_000_000, 1_000_000_000))
        (place / "part.c").write_text(PART.replace("2", "3"))
    assert run_in_both(places, "make").count("gcc") == 2


def test_nothing_in_a_workspace_can_be_executed(workspace: Path) -> None:
    script = workspace / "script"
    script.write_text("#!/bin/sh\necho ran\n")
    script.chmod(0o755)

    with pytest.raises(PermissionError, match=r"Errno 13\]"):
        subprocess.run([script], capture_output=True)
    assert subprocess.run(["sh", script], capture_output=True, text=True).stdout == "ran\n"
