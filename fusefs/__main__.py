"""The daemon's own command line, which `fusefs mount` runs: python -m fusefs MNT --state DIR --socket PATH."""

import argparse
import json
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from fusefs.control_socket import SocketUnusable
from fusefs.daemon import Settings, run
from fusefs.journal import JournalUnusable
from fusefs.layout import StateUnusable
from fusefs.messages import DaemonInfo
from fusefs.session import SessionError
from policy.deployment import Deployment, parse_deployment
from policy.refusals import InvalidDeployment

FAILED, INVALID = 1, 2


def main() -> int:
    """Serve until unmounted; answers the exit status."""
    arguments = _arguments()
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s", level="INFO")
    logging.getLogger("httpx").setLevel("WARNING")
    try:
        settings = Settings(
            mountpoint=os.path.abspath(arguments.mountpoint),
            state=arguments.state.absolute(),
            socket=arguments.socket.absolute(),
            deployment=_deployment(arguments.config),
        )
        run(settings, lambda info: _ready(arguments.ready_fd, info))
    except InvalidDeployment as error:
        return _failed(arguments.ready_fd, error, INVALID)
    except (SessionError, StateUnusable, JournalUnusable, SocketUnusable) as error:
        return _failed(arguments.ready_fd, error, FAILED)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m fusefs", description=__doc__)
    parser.add_argument("mountpoint")
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--ready-fd", type=int, help="where one line of JSON tells that the mount answers, or why not")
    return parser.parse_args()


def _deployment(config: Path | None) -> Deployment:
    if config is None:
        return parse_deployment("", "the default configuration")
    return parse_deployment(config.read_text(encoding="utf-8"), str(config))


def _ready(descriptor: int | None, info: DaemonInfo) -> None:
    logging.getLogger("fusefs").info(
        "mounted at %s (pid %d); kernel features in force: %s",
        info.mountpoint,
        info.pid,
        ", ".join(info.features),
    )
    _tell(descriptor, {"ready": True, "pid": info.pid, "features": info.features})


def _failed(descriptor: int | None, error: Exception, status: int) -> int:
    logging.getLogger("fusefs").error("%s", error)
    _tell(descriptor, {"ready": False, "error": str(error), "exit": status})
    return status


def _tell(descriptor: int | None, message: Mapping[str, object]) -> None:
    if descriptor is not None:
        os.write(descriptor, json.dumps(message).encode() + b"\n")
        os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main())
