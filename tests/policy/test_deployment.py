"""The configuration: CONTRACT's example, the defaults, foreign keys, and the pages of docs that quote it."""

import re
import string
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from policy.deployment import (
    Agent,
    Deployment,
    InvalidDeployment,
    OpenDeployment,
    Output,
    Sandbox,
    Settings,
    parse_deployment,
)
from policy.limits import AgentLimits
from policy.refusals import InvalidRequest, UnknownAgent

EXAMPLE = """
[fusefs]
operator_group = "ops"
max_turns = 21
max_turns_per_org = 11
operations = "all"
operation_retention_days = 31

[[agents]]
id = "field-guide"
deadline_seconds = 300
[agents.sandbox]
scratch = "512m"
turn_disk = "32m"
user_disk = "96m"
on_limit = "stop"
[agents.output]
files = ["png", "csv"]
[agents.context]
include = ["public/**"]
exclude = ["hr/**"]

[[agents]]
id = "notebook"
"""

FOREIGN = """
name = "vessel"
format = 3
[model]
name = "m"
max_tokens = 4096
scratchs = "in a table that is not ours"
[[tools]]
sandbox = true
[fusefs]
socket = "/run/x"
[[agents]]
id = "a"
name = "Field guide"
prompt = "..."
model = "m"
tools = ["bash"]
timeout = 30
user = "u"
uid = 1000
sandboxed = true
contexts = 3
content = "text"
[agents.sandbox]
image = "debian:12"
memory = "2g"
cpus = 2
network = "none"
scratch = "1g"
[agents.limits]
max_turn = 4
[agents.output]
format = "markdown"
max_tokens = 1000
"""


def test_every_key_is_read() -> None:
    deployment = parse_deployment(EXAMPLE, "deployment.toml")

    assert deployment.fusefs == Settings(
        operator_group="ops",
        max_turns=21,
        max_turns_per_org=11,
        operations="all",
        operation_retention_days=31,
    )
    assert [agent.id for agent in deployment.agents] == ["field-guide", "notebook"]
    agent = deployment.agent("field-guide")
    assert agent.deadline_seconds == 300.0
    assert agent.sandbox == Sandbox(scratch=512 << 20, turn_disk=32 << 20, user_disk=96 << 20, on_limit="stop")
    assert agent.limits == AgentLimits.from_sizes(scratch=512 << 20, user_disk=96 << 20, turn_disk=32 << 20)
    assert agent.has_outbox
    assert agent.output.files == ("png", "csv")
    assert (agent.context.include, agent.context.exclude) == (("public/**",), ("hr/**",))


def test_defaults() -> None:
    deployment = parse_deployment("[[agents]]\nid = 'a'", "deployment.toml")

    assert deployment.fusefs.model_dump() == {
        "operator_group": "fusefs",
        "max_turns": 20,
        "max_turns_per_org": 10,
        "operations": "writes",
        "operation_retention_days": 30,
        "context_generations": 10,
        "context_retention_days": 30,
    }
    agent = deployment.agent("a")
    assert agent.model_dump() == {
        "id": "a",
        "deadline_seconds": 600.0,
        "sandbox": {
            "scratch": 256 << 20,
            "user_disk": 128 << 20,
            "turn_disk": 64 << 20,
            "on_limit": "refuse",
        },
        "output": {"files": ()},
        "context": {"include": ("**",), "exclude": ()},
    }
    assert not agent.has_outbox


def test_defaults_follow_scratch() -> None:
    text = "[[agents]]\nid = 'a'\nsandbox.scratch = '1g'"

    sandbox = parse_deployment(text, "deployment.toml").agent("a").sandbox

    assert (sandbox.user_disk, sandbox.turn_disk) == (512 << 20, 256 << 20)


def test_equal_sizes_are_right_and_so_is_a_number_of_bytes() -> None:
    text = "[[agents]]\nid = 'a'\nsandbox = {scratch = '1m', user_disk = '1024k', turn_disk = 1048576}"

    limits = parse_deployment(text, "deployment.toml").agent("a").limits

    assert limits.scratch == limits.user == limits.turn == (1 << 20, 1 << 10)


def test_keys_of_other_programs_are_left_alone() -> None:
    deployment = parse_deployment(FOREIGN, "deployment.toml")

    assert deployment.agent("a").sandbox.scratch == 1 << 30
    assert deployment.fusefs == Settings()


def test_limits_are_made_once() -> None:
    agent = Agent(id="a")

    assert agent.limits is agent.limits


def test_the_models_are_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Agent(id="a").id = "b"


def test_the_order_of_sizes_also_holds_in_code() -> None:
    with pytest.raises(ValidationError, match="2m is more than user_disk, 1m; right: at most 1m"):
        Sandbox(user_disk=1 << 20, turn_disk=2 << 20)


@pytest.mark.parametrize(("asked", "nearest"), [("field-guid", "field-guide"), ("notes", "notebook"), ("zzz", None)])
def test_an_unknown_agent_is_refused_and_the_nearest_named(asked: str, nearest: str | None) -> None:
    with pytest.raises(UnknownAgent) as refused:
        parse_deployment(EXAMPLE, "deployment.toml").agent(asked)

    assert (refused.value.known, refused.value.nearest) == (("field-guide", "notebook"), nearest)


def test_an_empty_list_of_agents_is_a_list() -> None:
    with pytest.raises(UnknownAgent, match="the configuration has none"):
        parse_deployment("agents = []", "deployment.toml").agent("a")


@pytest.mark.parametrize("text", ["", "# nothing", "[other]\nkey = 1", "[fusefs]\nmax_turns = 20"])
def test_without_agents_any_agent_will_do(text: str) -> None:
    deployment = parse_deployment(text, "deployment.toml")

    assert deployment == OpenDeployment()
    assert deployment.agent("anything") == Agent(id="anything", output=Output(files=("png", "svg", "csv", "pdf")))


def test_settings_hold_without_agents() -> None:
    assert parse_deployment("[fusefs]\nmax_turns = 2", "d").fusefs.max_turns == 2


@pytest.mark.parametrize("agent", ["", "..", "a/b", "a" * 65])
def test_an_open_deployment_still_refuses_what_is_no_agent_id(agent: str) -> None:
    with pytest.raises(InvalidRequest, match="is not an agent id; right: a letter or digit"):
        OpenDeployment().agent(agent)


@given(
    scratch=st.integers(4, 1 << 40),
    user=st.none() | st.integers(1, 1 << 40),
    turn=st.none() | st.integers(1, 1 << 40),
)
def test_sizes_are_in_order_or_refused(scratch: int, user: int | None, turn: int | None) -> None:
    lines = ["[[agents]]", 'id = "a"', "[agents.sandbox]", f'scratch = "{scratch}"']
    lines += [f'{key} = "{size}"' for key, size in (("user_disk", user), ("turn_disk", turn)) if size is not None]
    wanted = (turn or scratch // 4, user or scratch // 2, scratch)

    try:
        sandbox = parse_deployment("\n".join(lines), "d").agent("a").sandbox
    except InvalidDeployment:
        assert list(wanted) != sorted(wanted)
    else:
        assert list(wanted) == sorted(wanted)
        assert (sandbox.turn_disk, sandbox.user_disk, sandbox.scratch) == wanted


@given(st.text(alphabet=string.printable, max_size=80))
def test_any_text_is_a_deployment_or_is_refused(text: str) -> None:
    with suppress(InvalidDeployment):
        assert isinstance(parse_deployment(text, "d"), Deployment)


PAGE = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
ERRORS = [(toml, told) for (kind, toml), (next_kind, told) in pairwise(BLOCKS) if (kind, next_kind) == ("toml", "text")]


def test_the_page_shows_the_whole_file_with_its_defaults() -> None:
    [agent] = parse_deployment(BLOCKS[0][1], "deployment.toml").agents

    assert agent.sandbox == Sandbox()
    assert set(re.findall(r"^(\w+) = ", BLOCKS[0][1], re.MULTILINE)) == {
        *Settings.model_fields,
        "id",
        "deadline_seconds",
        *Sandbox.model_fields,
        "files",
        "include",
        "exclude",
    }


@pytest.mark.parametrize(("toml", "told"), ERRORS)
def test_the_page_shows_errors_as_they_are(toml: str, told: str) -> None:
    with pytest.raises(InvalidDeployment) as invalid:
        parse_deployment(toml, "deployment.toml")

    assert str(invalid.value) == told.rstrip()
