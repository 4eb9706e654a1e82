"""The workspace surface: a turn's writable tree, kept in a plain backing directory."""

from fusefs.workspace.workspace import Workspace as Workspace
