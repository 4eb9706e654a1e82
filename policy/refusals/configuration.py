"""A configuration that is refused."""

from dataclasses import dataclass
from errno import EINVAL

from policy.refusals.base import Refusal

# A configuration that is not valid.


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong in a configuration.

    `agent` is its id (`#2` for the second agent where the id itself is wrong), or None outside the agents;
    `key` is dotted, below the agent; `right` is a phrase that says what would be right there.
    """

    agent: str | None
    key: str
    reason: str
    right: str

    def __str__(self) -> str:
        where = self.key if self.agent is None else f"agent {self.agent}: {self.key}"
        return f"{where}: {self.reason}; right: {self.right}"


@dataclass(eq=False)
class InvalidDeployment(Refusal):
    """The configuration named `source` has `problems`: all of them."""

    errno = EINVAL
    source: str
    problems: tuple[Problem, ...]

    def __str__(self) -> str:
        return "\n".join(f"{self.source}: {problem}" for problem in self.problems)
