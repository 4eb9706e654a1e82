"""The workspace surface: a turn's writable tree, kept in a plain backing directory."""

from fusefs.workspace.orphans import Orphans as Orphans
from fusefs.workspace.outbox import Outbox as Outbox
from fusefs.workspace.outbox import OutboxRules as OutboxRules
from fusefs.workspace.shared import Shared as Shared
from fusefs.workspace.stocktaking import Stocktaking as Stocktaking
from fusefs.workspace.workspace import Workspace as Workspace
