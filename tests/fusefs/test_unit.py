"""The unit file for systemd, judged by systemd itself."""

import configparser
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

UNIT = Path(__file__).parents[2] / "systemd" / "fusefs.service"

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
