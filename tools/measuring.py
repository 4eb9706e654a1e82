"""A daemon of its own for the scripts that measure."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def mounted(base: Path, config: str | None = None) -> Iterator[Path]:
    """Mount at `base`/mnt, with the state beside it, and by default limits where no configuration is given.

    Gives the control socket; unmounted at the end. Raises CalledProcessError.
    """
    (base / "mnt").mkdir()
    command: list[str | Path] = [sys.executable, "-m", "tools.entry", f"--socket={base / 'control.sock'}"]
    mount: list[str | Path] = ["mount", base / "mnt", "--state", base / "state"]
    if config is not None:
        (base / "config.toml").write_text(config)
        mount += ["--config", base / "config.toml"]
    subprocess.run([*command, *mount], check=True, stdout=subprocess.DEVNULL)
    try:
        yield base / "control.sock"
    finally:
        subprocess.run([*command, "umount", base / "mnt"], check=True, stdout=subprocess.DEVNULL)
