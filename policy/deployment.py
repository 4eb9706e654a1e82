"""The configuration file: frozen models, parsed once (CONTRACT, Configuration; docs/configuration.md).

A Vessel deployment.toml works as it is: keys of other programs are left alone, wherever they stand.
"""

import tomllib
from functools import cached_property
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from policy import diagnosis, keys, sizes
from policy.limits import AgentLimits
from policy.refusals import InvalidDeployment, InvalidRequest, Problem, UnknownAgent
from policy.spelling import nearest
from policy.values import (
    FILE_TYPES,
    AgentId,
    Count,
    FileTypes,
    Globs,
    Logged,
    OnLimit,
    Seconds,
    Size,
    Text,
    list_for,
    shown,
    table_for,
    wrong,
)

__all__ = [
    "Agent",
    "ContextRule",
    "Deployment",
    "InvalidDeployment",
    "OpenDeployment",
    "Output",
    "Problem",
    "Sandbox",
    "Settings",
    "parse_deployment",
]


class _Table(BaseModel):
    """A table of the file. Other programs' keys in it are not kept."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Settings(_Table):
    """`[fusefs]`: what holds for the whole mount."""

    operator_group: Text = "fusefs"
    max_turns: Count = 20
    max_turns_per_org: Count = 10
    operations: Logged = "writes"
    operation_retention_days: Count = 30
    context_generations: Count = 10
    context_retention_days: Count = 30


class Sandbox(_Table):
    """`[agents.sandbox]`: what the workspaces of an agent may hold; the three sizes in bytes."""

    scratch: Size = 256 << 20
    # In this order, because each is checked against, and takes its default from, those before it.
    user_disk: Size = Field(default_factory=lambda given: given["scratch"] // 2, validate_default=True)
    turn_disk: Size = Field(default_factory=lambda given: given["scratch"] // 4, validate_default=True)
    on_limit: OnLimit = "refuse"

    @field_validator("user_disk", "turn_disk")
    @classmethod
    def _within_the_next(cls, size: int, info: ValidationInfo) -> int:
        """`turn_disk <= user_disk <= scratch`."""
        outer = "user_disk" if info.field_name == "turn_disk" and "user_disk" in info.data else "scratch"
        bound = info.data.get(outer, size)  # absent where it is wrong itself, which is told already
        if size > bound:
            most = sizes.render(bound)
            raise wrong(f"{sizes.render(size)} is more than {outer}, {most}", f"at most {most}")
        return size


class Output(_Table):
    """`[agents.output]`: the types of file that may leave through the outbox; none, no outbox."""

    files: FileTypes = ()


class ContextRule(_Table):
    """`[agents.context]`: what turns of an agent may see of their org's context."""

    include: Globs = ("**",)
    exclude: Globs = ()


class Agent(_Table):
    """`[[agents]]`: one configured kind of work."""

    id: AgentId
    deadline_seconds: Seconds = 600.0
    sandbox: Annotated[Sandbox, table_for("[agents.sandbox]")] = Sandbox()
    output: Annotated[Output, table_for("[agents.output]")] = Output()
    context: Annotated[ContextRule, table_for("[agents.context]")] = ContextRule()

    @cached_property
    def limits(self) -> AgentLimits:
        """The bounds that the sizes of the sandbox stand for."""
        sandbox = self.sandbox
        return AgentLimits.from_sizes(scratch=sandbox.scratch, user_disk=sandbox.user_disk, turn_disk=sandbox.turn_disk)

    @property
    def has_outbox(self) -> bool:
        """Whether any type of file may leave."""
        return bool(self.output.files)


class Deployment(_Table):
    """The whole file: settings, and the agents that it lists."""

    fusefs: Annotated[Settings, table_for("[fusefs]")] = Settings()
    agents: Annotated[
        tuple[Annotated[Agent, table_for("[[agents]]")], ...], list_for("one table [[agents]] for each agent")
    ] = ()

    def agent(self, agent_id: str) -> Agent:
        """The agent of that id. Raises UnknownAgent."""
        for agent in self.agents:
            if agent.id == agent_id:
                return agent
        known = tuple(agent.id for agent in self.agents)
        raise UnknownAgent(agent_id, known, nearest(agent_id, known))


class OpenDeployment(Deployment):
    """What holds where no agents are listed: any agent, with the default limits and all types of file."""

    def agent(self, agent_id: str) -> Agent:
        """An agent of that id. Raises InvalidRequest for an id that no file could have."""
        if not keys.is_agent_id(agent_id):
            raise InvalidRequest(f"{shown(agent_id)} is not an agent id; right: {keys.AGENT_ID}")
        return Agent(id=agent_id, output=Output(files=FILE_TYPES))


def parse_deployment(text: str, source: str) -> Deployment:
    """The deployment that `text`, read from `source`, describes.

    Without `agents` in it, that is an OpenDeployment with its settings. Raises InvalidDeployment with every
    problem there is, except that a text that is not TOML has only that one.
    """
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as not_toml:
        raise InvalidDeployment(source, (diagnosis.in_syntax(text, not_toml),)) from not_toml
    kind = Deployment if "agents" in document else OpenDeployment
    invalid = deployment = None
    try:
        deployment = kind.model_validate(document)
    except ValidationError as error:
        invalid = error
    found = diagnosis.in_document(document, kind, invalid)
    if found or deployment is None:
        raise InvalidDeployment(source, found) from invalid
    return deployment
