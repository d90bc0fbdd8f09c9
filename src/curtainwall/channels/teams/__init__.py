"""Teams that ask each other: pairs and their conversations, and the tools with which agents and people talk to a team."""

from curtainwall.channels.teams.chains import Chain
from curtainwall.channels.teams.figures import Exchange, PairFigures, Shortage, exchanges, shortage
from curtainwall.channels.teams.pairs import Pair
from curtainwall.channels.teams.summing import Sum
from curtainwall.channels.teams.talk import DAY, Answers, Caller, Finish, Peers, Talk, Tell, Terms, Told
from curtainwall.channels.teams.tools import Card, Hands, Keeping, exchange_json, figures_json, team_closers, team_runners

__all__ = [
    "DAY",
    "Answers",
    "Caller",
    "Card",
    "Chain",
    "Exchange",
    "Finish",
    "Hands",
    "Keeping",
    "Pair",
    "PairFigures",
    "Peers",
    "Shortage",
    "Sum",
    "Talk",
    "Tell",
    "Terms",
    "Told",
    "exchange_json",
    "exchanges",
    "figures_json",
    "shortage",
    "team_closers",
    "team_runners",
]
