"""Python's own tools: a virtual environment, pip, and the temporary files of tempfile."""

import os
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest

from tests.mounted.compare import Places, run_in_both, same_outcome, same_tree

NAME = "example_wheel"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel with a module, data, and a console script (the format: PyPA, binary distribution format)."""
    path = tmp_path_factory.mktemp("wheel") / f"{NAME}-1.0-py3-none-any.whl"
    info = f"{NAME}-1.0.dist-info"
    files = {
        f"{NAME}/__init__.py": "def main():\n    print('a wheel speaks')\n",
        f"{NAME}/data.txt": "data\n" * 1000,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\nspeak = {NAME}:main\n",
    }
    record = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in (files | {f"{info}/RECORD": record}).items():
            archive.writestr(name, text)
    return path


def of_the_place(path: bytes) -> bool:
    """Files that hold the path, or the time, at which they were written."""
    return path.endswith((b".pyc", b"pyvenv.cfg", b"RECORD")) or b"/bin/" in path


@pytest.mark.timeout(400)
def test_pip_installs_a_wheel_into_a_venv(places: Places, wheel: Path) -> None:
    run_in_both(places, sys.executable, "-m", "venv", "env")
    pip = ["env/bin/python", "-m", "pip", "--disable-pip-version-check", "--no-cache-dir", "--isolated"]
    run_in_both(places, *pip, "install", "-q", "--no-index", wheel)

    listed = run_in_both(places, *pip, "list", "--format=freeze")
    assert "example" in listed
    assert run_in_both(places, "env/bin/python", "env/bin/speak") == "a wheel speaks\n"
    assert len(same_tree(places, of_the_place)) > 100
    run_in_both(places, *pip, "uninstall", "-q", "-y", NAME)
    same_tree(places, of_the_place)


def temporary_file(directory: Path) -> tuple[bytes, list[str], int]:
    with tempfile.TemporaryFile(dir=directory) as file:
        file.write(b"hidden" * 10_000)
        file.seek(0)
        return file.read(6), os.listdir(directory), os.fstat(file.fileno()).st_nlink


def named_temporary_file(directory: Path) -> tuple[str, bytes, list[str]]:
    with tempfile.NamedTemporaryFile(dir=directory) as file:
        file.write(b"seen")
        file.flush()
        mode = oct(Path(file.name).stat().st_mode)
        content = Path(file.name).read_bytes()
    return mode, content, os.listdir(directory)


def made_by_mkstemp(directory: Path) -> tuple[str, int]:
    descriptor, name = tempfile.mkstemp(dir=directory)
    written = os.write(descriptor, b"12345")
    os.close(descriptor)
    status = os.stat(name)
    os.unlink(name)
    return oct(status.st_mode), written + status.st_size


def spooled_and_directory(directory: Path) -> list[str]:
    with (
        tempfile.TemporaryDirectory(dir=directory) as inner,
        tempfile.SpooledTemporaryFile(10, dir=inner) as file,
    ):
        file.write(b"more than ten bytes")
        return os.listdir(inner)


@pytest.mark.parametrize("operation", [temporary_file, named_temporary_file, made_by_mkstemp, spooled_and_directory])
def test_temporary_files(places: Places, operation: object) -> None:
    assert callable(operation)
    same_outcome(places.workspace, places.plain, operation)

    assert same_tree(places) == {}
