"""All that is wrong in a configuration, told in one go.

Three questions, each asked of the whole document: is a key a slip for one of ours, do two agents share an id,
and what did the models say of the values.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from policy.keys import is_agent_id
from policy.refusals import Problem
from policy.spelling import slip
from policy.values import WRONG


def in_syntax(text: str, error: Exception) -> Problem:
    """What tomllib's `error` says of `text`, with the line."""
    reason, _, position = str(error).partition(" (at ")
    line = re.match(r"line (\d+)", position)
    if line is not None:
        where = f"line {line[1]}"
    elif position:  # "at end of document"
        where = f"line {len(text.splitlines())}"
    else:
        where = "the text"
    return Problem(None, where, f"not TOML: {reason}", 'TOML, such as scratch = "256m"')


def in_document(
    document: Mapping[str, Any], model: type[BaseModel], invalid: ValidationError | None
) -> tuple[Problem, ...]:
    """The problems of `document`, which was to become a `model`; `invalid` is what came of trying."""
    slips = tuple(_slips(document, model))
    misspelt = {(found.agent, found.right) for found in slips}
    values = (_in_value(document, error) for error in (invalid.errors() if invalid else ()) if _is_new(error))
    # A key that is missing because it is misspelt is told once, as misspelt.
    told_once = tuple(found for found in values if (found.agent, found.key) not in misspelt)
    return (*slips, *_repeated_ids(document), *told_once)


def _is_new(error: ErrorDetails) -> bool:
    """Not so for a default that could not be made from a wrong value: that value has its own error."""
    return error["type"] != "default_factory_not_called"


def _slips(
    table: Mapping[str, Any], model: type[BaseModel], agent: str | None = None, above: str = ""
) -> Iterator[Problem]:
    """Keys of `table` and of the tables in it that were meant to be keys of `model`."""
    for key, value in table.items():
        field = model.model_fields.get(key)
        if field is None:
            # A table is no slip for a value, nor the other way: `sandboxed = true` is another program's.
            ours = (
                name
                for name, its in model.model_fields.items()
                if (_model_in(its.annotation) is not None) == _holds_tables(value)
            )
            if meant := slip(key, ours):
                yield Problem(agent, above + key, "no such key", meant)
            continue
        inner = _model_in(field.annotation)
        if inner is None:
            continue
        if isinstance(value, dict):
            yield from _slips(value, inner, agent, f"{above}{key}.")
        elif isinstance(value, list):  # of the tables that have more than one, only the agents are ours
            for position, entry in enumerate(value):
                if isinstance(entry, dict):
                    yield from _slips(entry, inner, _agent_name(value, position))


def _holds_tables(value: object) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and any(isinstance(i, dict) for i in value))


def _model_in(annotation: object) -> type[BaseModel] | None:
    """The model of the table, or of each of the tables, that a field of this type holds."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for inner in get_args(annotation) if (model := _model_in(inner))), None)


def _repeated_ids(document: Mapping[str, Any]) -> Iterator[Problem]:
    agents = document.get("agents")
    tables = [agent for agent in agents if isinstance(agent, dict)] if isinstance(agents, list) else []
    held = Counter(agent["id"] for agent in tables if isinstance(agent.get("id"), str))
    for agent_id, count in held.items():
        if count > 1:
            yield Problem(agent_id, "id", f"{count} agents have this id", "an id of its own for each")


def _in_value(document: Mapping[str, Any], error: ErrorDetails) -> Problem:
    agent, path = _place(document, error["loc"])
    key = ".".join(path) or "agents"
    if error["type"] != WRONG:  # pydantic's own "missing": an agent's id is all that has no default
        return Problem(agent, key, "missing", 'a line such as id = "field-guide"')
    reason, right = error["ctx"]["reason"], error["ctx"]["right"]
    if not _is_given(document, error["loc"]):
        reason = f"not given, and its default is wrong here: {reason}"
    return Problem(agent, key, reason, right)


def _place(document: Mapping[str, Any], loc: tuple[int | str, ...]) -> tuple[str | None, tuple[str, ...]]:
    """The agent and the key that pydantic's `loc` stands for; the place in a list of values is left out."""
    agent = None
    match loc:
        case ("agents", int(position), *rest):
            agent = _agent_name(document["agents"], position)
            loc = tuple(rest)
    return agent, tuple(part for part in loc if isinstance(part, str))


def _agent_name(agents: list[Any], position: int) -> str:
    """The agent's id, or `#2` for the second one where it has none to name it by."""
    table = agents[position]
    agent_id = table.get("id") if isinstance(table, dict) else None
    return agent_id if isinstance(agent_id, str) and is_agent_id(agent_id) else f"#{position + 1}"


def _is_given(document: Mapping[str, Any], loc: tuple[int | str, ...]) -> bool:
    at: Any = document
    for part in loc:
        if isinstance(part, str) and part not in at:
            return False
        at = at[part]
    return True
