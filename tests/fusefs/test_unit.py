"""The unit file for systemd, judged by systemd itself."""

import configparser
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "systemd" / "fusefs.service"
OPERATIONS = ROOT / "docs" / "operations.md"
PACKAGES = {"bwrap": "bubblewrap", "jq": "jq", "getfattr": "attr", "sqlite3": "sqlite3", "curl": "curl", "ps": "procps"}
"""What the examples of the docs call that no bare Debian has, and what brings it."""

OWN_MOUNTS = (
    "BindPaths",
    "BindReadOnlyPaths",
    "DynamicUser",
    "InaccessiblePaths",
    "MountAPIVFS",
    "PrivateDevices",
    "PrivateMounts",
    "PrivateTmp",
    "ProtectControlGroups",
    "ProtectHome",
    "ProtectKernelLogs",
    "ProtectKernelModules",
    "ProtectKernelTunables",
    "ProtectProc",
    "ProtectSystem",
    "ReadOnlyPaths",
    "ReadWritePaths",
    "RootDirectory",
    "RootImage",
    "TemporaryFileSystem",
)
"""What has systemd make a mount namespace (systemd.exec(5)), out of which no mount reaches anybody."""


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_understands_every_line(tmp_path: Path) -> None:
    # The program need not be installed where the unit file has it; that is all that is changed.
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/fusefs/bin/fusefs", sys.executable))

    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_it_has_no_mounts_of_its_own() -> None:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[method-assign,assignment]
    parser.read_string(UNIT.read_text())

    assert set(parser["Service"]) & set(OWN_MOUNTS) == set()
    assert parser["Service"]["KillMode"] == "mixed"


def examples() -> list[str]:
    """The lines of code blocks in docs/operations.md."""
    return [line.strip() for line in OPERATIONS.read_text().splitlines() if line.startswith("    ")]


def test_the_docs_make_what_the_unit_names() -> None:
    lines = examples()
    (start,) = (line for line in UNIT.read_text().splitlines() if line.startswith("ExecStart="))
    program, *_, config, mountpoint = start.removeprefix("ExecStart=").split()
    (made,) = (line.split()[2:] for line in lines if line.startswith("mkdir -p "))

    assert {mountpoint, str(Path(config).parent)} <= set(made)
    assert f"fusefs check {config}" in lines
    assert f"ln -s {program} /usr/local/bin/fusefs" in lines
    for wanted in ("groupadd --system fusefs", "systemctl enable --now fusefs", "systemctl daemon-reload"):
        assert any(line.startswith(wanted) for line in lines), wanted


def test_the_docs_install_what_their_examples_call() -> None:
    lines = examples()
    installed = {word for line in lines if line.startswith("apt-get install ") for word in line.split("#")[0].split()}

    for program, package in PACKAGES.items():
        assert any(program in line for line in lines) or program in ("bwrap", "ps"), program
        assert package in installed
