"""What the workloads work on, made on the fly and the same every time: a tree of sources, a repository, a wheel."""

import base64
import hashlib
import os
import random
import subprocess
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

WORDS = ("alder", "birch", "cedar", "elm", "fir", "hazel", "larch", "maple", "oak", "pine", "rowan", "yew")
NEEDLE = "mistletoe"
"""What grep looks for: a word of every 50th file."""


@dataclass(frozen=True)
class Size:
    """How much there is to do: files of a tree, sources of a program, rows, files and bytes of single operations."""

    files: int
    sources: int
    rows: int
    single_files: int
    single_bytes: int


FULL = Size(files=1500, sources=12, rows=3000, single_files=1000, single_bytes=32 << 20)
QUICK = Size(files=20, sources=2, rows=20, single_files=20, single_bytes=2 << 20)


@dataclass(frozen=True)
class Material:
    """Paths of what was made, and the environment that programs run in: their own defaults, and no network."""

    size: Size
    tar: Path
    repository: Path
    wheel: Path
    environment: Mapping[str, str]


def make(base: Path, size: Size) -> Material:
    """Make everything in a new folder."""
    base.mkdir()
    tree = base / "tree"
    _make_tree(tree, size)
    environment = _environment()
    tar = base / "tree.tar"
    subprocess.run(["tar", "-C", base, "-cf", tar, "tree"], check=True)
    repository = base / "origin"
    _make_repository(tree, repository, environment)
    return Material(size, tar, repository, _make_wheel(base, max(10, size.files // 10)), environment)


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON", "GIT_"))}
    return kept | {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_CACHE_DIR": "1",
        "PIP_NO_INDEX": "1",
        "PIP_ROOT_USER_ACTION": "ignore",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "LC_ALL": "C",
    }


def _make_tree(tree: Path, size: Size) -> None:
    chance = random.Random(7)
    for number in range(size.files):
        folder = tree / f"part-{number % 23}" / f"section-{number % 5}"
        folder.mkdir(parents=True, exist_ok=True)
        text = "\n".join(" ".join(chance.choices(WORDS, k=10)) for _ in range(chance.choice((2, 10, 40, 150))))
        (folder / f"file-{number}.txt").write_text(text + (f"\n{NEEDLE}\n" if number % 50 == 0 else "\n"))
    (tree / "link").symlink_to("part-0/section-0/file-0.txt")
    source = tree / "source"
    source.mkdir()
    names = [f"unit{number}" for number in range(size.sources)]
    (source / "units.h").write_text("".join(f"int {name}(int);\n" for name in names))
    for number, name in enumerate(names):
        steps = "".join(f"  x = x * {step + 3} + {number};\n" for step in range(40))
        includes = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n"
        (source / f"{name}.c").write_text(
            f'{includes}#include "units.h"\nint {name}(int x) {{\n{steps}  return x;\n}}\n'
        )
    calls = " + ".join(f"{name}(1)" for name in names)
    (source / "main.c").write_text(f'#include "units.h"\nint main(void) {{ return ({calls}) & 0; }}\n')


def _make_repository(tree: Path, repository: Path, environment: Mapping[str, str]) -> None:
    git = ["git", "-c", "user.name=bench", "-c", "user.email=bench@example.org", "-C", str(tree)]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "all"]):
        subprocess.run([*git, *words], check=True, env=environment)
    (tree / ".git").rename(repository)


def _make_wheel(base: Path, modules: int) -> Path:
    """A package of so many modules, as a wheel (packaging.python.org, binary distribution format)."""
    files = {f"benched/module_{number}.py": f"def call():\n    return {number}\n" * 20 for number in range(modules)}
    files["benched/__init__.py"] = ""
    information = "benched-1.0.dist-info"
    files[f"{information}/METADATA"] = "Metadata-Version: 2.1\nName: benched\nVersion: 1.0\n"
    files[f"{information}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: bench\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    record = "".join(f"{name},sha256={_digest(text)},{len(text)}\n" for name, text in files.items())
    files[f"{information}/RECORD"] = f"{record}{information}/RECORD,,\n"
    wheel = base / "benched-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return wheel


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
