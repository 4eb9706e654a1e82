"""Contexts are read-only by construction: no class that serves them has a method that changes anything."""

import inspect

import pytest

from fusefs import nodes
from fusefs.context import nodes as context_nodes
from fusefs.nodes import Directory, File, Handle, Node, Symlink

READING = (Node, File, Directory, Symlink, Handle)
WRITING = (nodes.WritableNode, nodes.WritableFile, nodes.WritableDirectory, nodes.WritableHandle)
READ_METHODS = {name for kind in READING for name in vars(kind) if not name.startswith("_")}
CHANGING = {name for kind in WRITING for name in vars(kind) if not name.startswith("_")} - READ_METHODS


def served() -> list[type]:
    """All classes of the module that the kernel's requests can come to."""
    every = (kind for _, kind in inspect.getmembers(context_nodes, inspect.isclass))
    return [kind for kind in every if issubclass(kind, READING) and kind.__module__ == context_nodes.__name__]


def test_there_is_something_to_look_at() -> None:
    assert {"change", "set_xattr", "open_for", "create", "unlink", "rename", "write"} <= CHANGING
    assert {"Document", "DocumentHandle", "Edition", "Folder", "Link"} <= {kind.__name__ for kind in served()}


@pytest.mark.parametrize("kind", served())
def test_no_class_can_change_anything(kind: type) -> None:
    assert not issubclass(kind, WRITING)
    assert {name for name in dir(kind) if name in CHANGING} == set()
