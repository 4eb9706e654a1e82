"""Agent ids and the keys of turns: the names of the folders under `turns/`.

A key is the agent's id, `-`, and the 32 hex digits of a random UUID: nobody can guess it, and it is never the
caller's own turn id (CONTRACT, The mount).
"""

import re
from uuid import UUID

AGENT_ID = "a letter or digit, then up to 63 letters, digits, '.', '_' or '-'"

# The longest key has 97 bytes, a valid file name; no id is "." or "..", or looks like an option.
_AGENT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_KEY = re.compile(_AGENT_ID.pattern + r"-[0-9a-f]{32}")


def is_agent_id(text: str) -> bool:
    """Whether `text` is spelt as an agent's id is (AGENT_ID says it for people)."""
    return _AGENT_ID.fullmatch(text) is not None


def key_for(agent: str, uuid: UUID) -> str:
    """The key of a turn of `agent`. The caller brings the randomness: `uuid.uuid4()`."""
    return f"{agent}-{uuid.hex}"


def is_key(text: str) -> bool:
    """Whether `text` is spelt as a key is, not whether such a turn is there."""
    return _KEY.fullmatch(text) is not None


def agent_of(key: str) -> str:
    """The agent whose turn a key was made for."""
    return key[:-33]
