"""Every way to be refused, each with its errno: the whole list of "no".

A rule raises one of these. Only `fusefs.operations` turns it into a reply to the kernel (its `errno`), and
only the control interface into a message for people (its `str`).
"""

from policy.refusals.base import Refusal as Refusal
from policy.refusals.configuration import InvalidDeployment as InvalidDeployment
from policy.refusals.configuration import Problem as Problem
from policy.refusals.mount import AttributesFull as AttributesFull
from policy.refusals.mount import CrossesTurns as CrossesTurns
from policy.refusals.mount import InUse as InUse
from policy.refusals.mount import Limit as Limit
from policy.refusals.mount import LimitReached as LimitReached
from policy.refusals.mount import NameTooLong as NameTooLong
from policy.refusals.mount import NotOutgoing as NotOutgoing
from policy.refusals.mount import NotPermitted as NotPermitted
from policy.refusals.mount import ReadOnly as ReadOnly
from policy.refusals.mount import Resource as Resource
from policy.refusals.mount import Stale as Stale
from policy.refusals.mount import TurnEnded as TurnEnded
from policy.refusals.requests import CallConflict as CallConflict
from policy.refusals.requests import Incomplete as Incomplete
from policy.refusals.requests import InvalidRequest as InvalidRequest
from policy.refusals.requests import LimitAboveUser as LimitAboveUser
from policy.refusals.requests import LimitUnderUse as LimitUnderUse
from policy.refusals.requests import NoSuchAttachment as NoSuchAttachment
from policy.refusals.requests import NoSuchCall as NoSuchCall
from policy.refusals.requests import NoSuchContext as NoSuchContext
from policy.refusals.requests import NoSuchProcess as NoSuchProcess
from policy.refusals.requests import NoSuchTurn as NoSuchTurn
from policy.refusals.requests import NotATree as NotATree
from policy.refusals.requests import NotCanonical as NotCanonical
from policy.refusals.requests import StaleBase as StaleBase
from policy.refusals.requests import TooManyTurns as TooManyTurns
from policy.refusals.requests import TurnConflict as TurnConflict
from policy.refusals.requests import TurnOver as TurnOver
from policy.refusals.requests import UnknownAgent as UnknownAgent
