"""The daemon's own command line, which `fusefs mount` runs: python -m fusefs MNT --state DIR --socket PATH."""

import argparse
import json
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from fusefs.logs import Form, Level, Logs
from fusefs.settings import HANG_SECONDS, ImpossiblePlace, Settings
from fusefs.supervisor import run
from fusefs.table import check_layout
from fusefs.worker import KNOWN_FAILURES
from policy.deployment import Deployment, parse_deployment
from policy.refusals import InvalidDeployment

FAILED, INVALID = 1, 2

log = logging.getLogger("fusefs")


class UnreadableConfig(Exception):
    """The configuration file cannot be read; str() says why, for people."""


class Starter:
    """Who ran this command: told in one line of JSON, where a descriptor was given for it."""

    def __init__(self, descriptor: int | None, mountpoint: str) -> None:
        self.descriptors: Sequence[int] = () if descriptor is None else (descriptor,)
        self._mountpoint = mountpoint

    def ready(self, features: Sequence[str]) -> None:
        """The mount answers."""
        log.info("mounted at %s; kernel features in force: %s", self._mountpoint, ", ".join(features))
        self._tell({"ready": True, "pid": os.getpid(), "features": features})

    def failed(self, error: str, status: int) -> None:
        """It will not."""
        self._tell({"ready": False, "error": error, "exit": status})

    def _tell(self, message: Mapping[str, object]) -> None:
        for descriptor in self.descriptors:
            os.write(descriptor, json.dumps(message).encode() + b"\n")
            os.close(descriptor)
        self.descriptors = ()


def main() -> int:
    """Serve until unmounted; answers the exit status."""
    arguments = _arguments()
    _logs(arguments).begin()
    starter = Starter(arguments.ready_fd, arguments.mountpoint)
    try:
        settings = _settings(arguments)
        if arguments.check is None:
            return run(settings, starter)
        check_layout(arguments.check)  # of the one that asks
        return 0
    except (InvalidDeployment, UnreadableConfig, ImpossiblePlace) as error:
        return _failed(arguments, starter, error, INVALID)
    except KNOWN_FAILURES as error:
        return _failed(arguments, starter, error, FAILED)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m fusefs", description=__doc__)
    parser.add_argument("mountpoint")
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--no-resend", action="store_true", help="as on kernels before 6.9, which cannot resend")
    parser.add_argument("--log-format", choices=[form.value for form in Form], default=Form.TEXT.value)
    parser.add_argument("--log-level", choices=[level.value for level in Level], default=Level.INFO.value)
    parser.add_argument("--hang-seconds", type=float, default=HANG_SECONDS, help=argparse.SUPPRESS)
    parser.add_argument("--check", type=int, metavar="LAYOUT", help="tell whether this could take over such a table")
    parser.add_argument("--ready-fd", type=int, help="where one line of JSON tells that the mount answers, or why not")
    return parser.parse_args()


def _logs(arguments: argparse.Namespace) -> Logs:
    return Logs(Form(arguments.log_format), Level(arguments.log_level))


def _settings(arguments: argparse.Namespace) -> Settings:
    """Raises InvalidDeployment, UnreadableConfig, ImpossiblePlace."""
    config = None if arguments.config is None else arguments.config.absolute()
    return Settings(
        mountpoint=os.path.abspath(arguments.mountpoint),
        state=arguments.state.absolute(),
        socket=arguments.socket.absolute(),
        deployment=_deployment(config),
        config=config,
        no_resend=arguments.no_resend,
        hang_seconds=arguments.hang_seconds,
        logs=_logs(arguments),
    )


def _deployment(config: Path | None) -> Deployment:
    if config is None:
        return parse_deployment("", "the default configuration")
    try:
        text = config.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableConfig(f"cannot read {config}: {error}") from error
    return parse_deployment(text, str(config))


def _failed(arguments: argparse.Namespace, starter: Starter, error: Exception, status: int) -> int:
    if arguments.check is not None:
        print(error, file=sys.stderr)
    else:
        log.error("%s", error)
        starter.failed(str(error), status)
    return status


if __name__ == "__main__":
    sys.exit(main())
