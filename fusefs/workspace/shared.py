"""What all workspaces of a mount use together."""

from dataclasses import dataclass

from fusefs import backing
from fusefs.careful import Careful
from fusefs.court import Court
from fusefs.in_hand import InHand
from fusefs.inodes import Inodes
from fusefs.table import Table
from fusefs.workspace.descriptors import Descriptors


@dataclass(frozen=True, slots=True)
class Shared:
    """It is the same for each of them.

    `court` judges files of outboxes; `careful` are those of them that are; `most_opened` is how much one of them may
    have open at once; `resumed` tells whether an earlier worker has served them.
    """

    inodes: Inodes
    descriptors: Descriptors
    reader: backing.Reader
    table: Table
    in_hand: InHand
    careful: set[Careful]
    most_opened: int
    court: Court
    resumed: bool = False
