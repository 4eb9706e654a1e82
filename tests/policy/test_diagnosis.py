"""Wrong configurations, each with all that is told of it."""

import pytest

from policy.deployment import parse_deployment
from policy.refusals import InvalidDeployment, Problem

A = '[[agents]]\nid = "a"\n'
BOX = A + "[agents.sandbox]\n"
SIZE = "digits, then an optional b, k, m or g, such as 64m"
AN_ID = "a letter or digit, then up to 63 letters, digits, '.', '_' or '-'"

WRONG: list[tuple[str, str | None, str, str, str]] = [
    # [fusefs]
    ("fusefs = 3", None, "fusefs", "3 is not a table", "a table [fusefs]"),
    ("[fusfs]\n", None, "fusfs", "no such key", "fusefs"),
    ("[fusefs]\nmax_turn = 3", None, "fusefs.max_turn", "no such key", "max_turns"),
    (
        "[fusefs]\noperation_retention_day = 3",
        None,
        "fusefs.operation_retention_day",
        "no such key",
        "operation_retention_days",
    ),
    (
        "[fusefs]\noperator_group = 7",
        None,
        "fusefs.operator_group",
        "7 is not a name",
        'a name such as "fusefs"',
    ),
    (
        "[fusefs]\noperator_group = ''",
        None,
        "fusefs.operator_group",
        '"" is not a name',
        'a name such as "fusefs"',
    ),
    (
        "[fusefs]\nmax_turns = 0",
        None,
        "fusefs.max_turns",
        "0 is not a whole number of at least 1",
        "1 or more",
    ),
    (
        "[fusefs]\nmax_turns = true",
        None,
        "fusefs.max_turns",
        "true is not a whole number of at least 1",
        "1 or more",
    ),
    (
        "[fusefs]\nmax_turns_per_org = 2.5",
        None,
        "fusefs.max_turns_per_org",
        "2.5 is not a whole number of at least 1",
        "1 or more",
    ),
    (
        "[fusefs]\nmax_turns_per_org = '10'",
        None,
        "fusefs.max_turns_per_org",
        '"10" is not a whole number of at least 1',
        "1 or more",
    ),
    (
        "[fusefs]\noperation_retention_days = -1",
        None,
        "fusefs.operation_retention_days",
        "-1 is not a whole number of at least 1",
        "1 or more",
    ),
    ("[fusefs]\noperations = 'wirtes'", None, "fusefs.operations", '"wirtes" is not known here', '"writes"'),
    (
        "[fusefs]\noperations = false",
        None,
        "fusefs.operations",
        "false is not known here",
        '"off" or "writes" or "all"',
    ),
    # [[agents]]
    ("agents = 5", None, "agents", "5 is not a list", "one table [[agents]] for each agent"),
    ("[agents]\nid = 'a'", None, "agents", "a table is not a list", "one table [[agents]] for each agent"),
    ("agents = [5]", "#1", "agents", "5 is not a table", "a table [[agents]]"),
    ("[[agent]]\nid = 'a'", None, "agent", "no such key", "agents"),
    ("[[agents]]\n", "#1", "id", "missing", 'a line such as id = "field-guide"'),
    ("[[agents]]\nID = 'a'", "#1", "ID", "no such key", "id"),
    ("[[agents]]\nid = 5", "#1", "id", "5 is not an agent id", AN_ID),
    (A + "[[agents]]\nid = '../b'", "#2", "id", '"../b" is not an agent id', AN_ID),
    (A + A, "a", "id", "2 agents have this id", "an id of its own for each"),
    (
        A + "deadline_seconds = -1",
        "a",
        "deadline_seconds",
        "-1 is not a number of seconds",
        "a number of more than 0, such as 600",
    ),
    (
        A + "deadline_seconds = inf",
        "a",
        "deadline_seconds",
        "inf is not a number of seconds",
        "a number of more than 0, such as 600",
    ),
    (A + "deadline_second = 5", "a", "deadline_second", "no such key", "deadline_seconds"),
    (A + "sandbox = '64m'", "a", "sandbox", '"64m" is not a table', "a table [agents.sandbox]"),
    (A + "[agents.sandbx]", "a", "sandbx", "no such key", "sandbox"),
    # [agents.sandbox]
    (BOX + "scratch = '256MB'", "a", "sandbox.scratch", '"256MB" is not a size', "256m"),
    (BOX + "scratch = 'lots'", "a", "sandbox.scratch", '"lots" is not a size', SIZE),
    (BOX + "scratch = -1", "a", "sandbox.scratch", "-1 is not a size", SIZE),
    (BOX + "scratch = true", "a", "sandbox.scratch", "true is not a size", "a size such as 64m"),
    (BOX + "scratch = 1.5", "a", "sandbox.scratch", "1.5 is not a size", "a size such as 64m"),
    (BOX + "scratch = ['64m']", "a", "sandbox.scratch", "a list is not a size", "a size such as 64m"),
    (
        BOX + "scratch = '9999999999g'",
        "a",
        "sandbox.scratch",
        '"9999999999g" is more than any file can hold',
        "at most 9223372036854775807b",
    ),
    (BOX + "turn_disk = '0m'", "a", "sandbox.turn_disk", "nothing fits in a size of 0", "a size such as 64m"),
    (
        BOX + "turn_disk = '129m'",
        "a",
        "sandbox.turn_disk",
        "129m is more than user_disk, 128m",
        "at most 128m",
    ),
    (BOX + "user_disk = '1g'", "a", "sandbox.user_disk", "1g is more than scratch, 256m", "at most 256m"),
    (
        BOX + "user_disk = '32m'",
        "a",
        "sandbox.turn_disk",
        "not given, and its default is wrong here: 64m is more than user_disk, 32m",
        "at most 32m",
    ),
    (
        BOX + "scratch = 3",
        "a",
        "sandbox.turn_disk",
        "not given, and its default is wrong here: nothing fits in a size of 0",
        "a size such as 64m",
    ),
    (BOX + "turn_disc = '1m'", "a", "sandbox.turn_disc", "no such key", "turn_disk"),
    (BOX + "scratchs = '1m'", "a", "sandbox.scratchs", "no such key", "scratch"),
    (BOX + "onlimit = 'stop'", "a", "sandbox.onlimit", "no such key", "on_limit"),
    (
        BOX + "on_limit = 'explode'",
        "a",
        "sandbox.on_limit",
        '"explode" is not known here',
        '"refuse" or "stop"',
    ),
    (BOX + "on_limit = 'STOP'", "a", "sandbox.on_limit", '"STOP" is not known here', '"stop"'),
    (BOX + "on_limit = 1", "a", "sandbox.on_limit", "1 is not known here", '"refuse" or "stop"'),
    # [agents.output], [agents.context]
    (
        A + "[agents.output]\nfiles = 'png'",
        "a",
        "output.files",
        '"png" is not a list',
        'a list such as ["png", "csv"]',
    ),
    (A + "[agents.output]\nfiles = ['png', 'jpg']", "a", "output.files", '"jpg" is not known here', '"png"'),
    (
        A + "[agents.output]\nfiles = ['exe']",
        "a",
        "output.files",
        '"exe" is not known here',
        '"png" or "svg" or "csv" or "pdf"',
    ),
    (A + "[agents.output]\nfile = ['png']", "a", "output.file", "no such key", "files"),
    (A + "context = false", "a", "context", "false is not a table", "a table [agents.context]"),
    (A + "[agents.context]\nexlude = ['hr/**']", "a", "context.exlude", "no such key", "exclude"),
    (
        A + "[agents.context]\ninclude = '**'",
        "a",
        "context.include",
        '"**" is not a list',
        'a list such as ["hr/**"]',
    ),
    (
        A + "[agents.context]\nexclude = [5]",
        "a",
        "context.exclude",
        "5 is not a path pattern",
        'a pattern such as "hr/**"',
    ),
    # not TOML
    ("[fusefs]\nmax_turns = \n", None, "line 2", "not TOML: Invalid value", 'TOML, such as scratch = "256m"'),
    ("\n\nx = [", None, "line 3", "not TOML: Invalid value", 'TOML, such as scratch = "256m"'),
    (
        BOX + "scratch = 64m",
        None,
        "line 4",
        "not TOML: Expected newline or end of document after a statement",
        'TOML, such as scratch = "256m"',
    ),
    (
        BOX + "scratch = '1g'\nscratch = '2g'",
        None,
        "line 5",
        "not TOML: Cannot overwrite a value",
        'TOML, such as scratch = "256m"',
    ),
]


@pytest.mark.parametrize(("text", "agent", "key", "reason", "right"), WRONG, ids=[case[0] for case in WRONG])
def test_one_problem(text: str, agent: str | None, key: str, reason: str, right: str) -> None:
    with pytest.raises(InvalidDeployment) as invalid:
        parse_deployment(text, "deployment.toml")

    assert invalid.value.problems == (Problem(agent, key, reason, right),)


@pytest.mark.parametrize("text", ["x = " + "[" * 100_000, "x = " + "1" * 5_000])
def test_what_the_toml_reader_gives_up_on(text: str) -> None:
    with pytest.raises(InvalidDeployment, match=r"^d: the text: not TOML: "):
        parse_deployment(text, "d")


def test_all_problems_are_told_at_once() -> None:
    text = """
        [fusefs]
        max_turns = 0
        operations = "some"
        [[agents]]
        id = "a"
        [agents.sandbox]
        scratch = "64m"
        user_disk = "128m"
        turn_disk = "256m"
        onlimit = "stop"
        [[agents]]
        id = "b"
        sandbox = { scratch = "64M" }
        output = { files = ["jpg", "gif"] }
        [[agents]]
        id = "b"
    """

    with pytest.raises(InvalidDeployment) as invalid:
        parse_deployment(text, "d.toml")

    assert str(invalid.value).splitlines() == [
        "d.toml: agent a: sandbox.onlimit: no such key; right: on_limit",
        "d.toml: agent b: id: 2 agents have this id; right: an id of its own for each",
        "d.toml: fusefs.max_turns: 0 is not a whole number of at least 1; right: 1 or more",
        'd.toml: fusefs.operations: "some" is not known here; right: "off" or "writes" or "all"',
        "d.toml: agent a: sandbox.user_disk: 128m is more than scratch, 64m; right: at most 64m",
        "d.toml: agent a: sandbox.turn_disk: 256m is more than scratch, 64m; right: at most 64m",
        'd.toml: agent b: sandbox.scratch: "64M" is not a size; right: 64m',
        'd.toml: agent b: output.files: "jpg" is not known here; right: "png"',
        'd.toml: agent b: output.files: "gif" is not known here; right: "png" or "svg" or "csv" or "pdf"',
    ]
