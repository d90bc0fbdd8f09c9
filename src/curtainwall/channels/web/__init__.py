"""The web: sessions and their asks in a browser, rendered here, updated by event streams, and usable without scripts."""

from curtainwall.channels.web.guard import WebAccess as WebAccess
from curtainwall.channels.web.live.hubs import Hubs as Hubs
from curtainwall.channels.web.ports import CallTrial as CallTrial
from curtainwall.channels.web.ports import CallTrialResult as CallTrialResult
from curtainwall.channels.web.ports import HealthFinding as HealthFinding
from curtainwall.channels.web.ports import Jobs as Jobs
from curtainwall.channels.web.ports import NewSession as NewSession
from curtainwall.channels.web.ports import Records as Records
from curtainwall.channels.web.ports import RuleTrials as RuleTrials
from curtainwall.channels.web.ports import SessionStarter as SessionStarter
from curtainwall.channels.web.ports import Spending as Spending
from curtainwall.channels.web.ports import TeamPairs as TeamPairs
from curtainwall.channels.web.ports import TeamSummary as TeamSummary
from curtainwall.channels.web.ports import WebPorts as WebPorts
from curtainwall.channels.web.server import web_app as web_app
from curtainwall.channels.web.sign_ins import SignIns as SignIns
