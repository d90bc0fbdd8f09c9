"""Who may answer asks and use control words, by channel, as the configuration says."""

from collections.abc import Callable

from curtainwall.channels.asks.answerers import answerer_words, answerers
from curtainwall.channels.asks.answers import Key
from curtainwall.config.schema import Config
from curtainwall.config.web_people import WEB, web_operators
from curtainwall.model import Index

_MATRIX = "matrix"


def operators_in(config: Config) -> dict[str, frozenset[str]]:
    """Return the operators of every channel."""
    return {**{name: frozenset(channel.operators) for name, channel in config.channels.items()}, WEB: web_operators(config)}


def served_operators(config: Config) -> dict[str, frozenset[str]]:
    """Return the operators of the channels that are served: nobody sees anything on the others."""
    off = {*(() if config.web.enabled else (WEB,)), *(() if config.matrix.homeserver else (_MATRIX,))}
    return {channel: people for channel, people in operators_in(config).items() if channel not in off}


def who_may_answer(index: Index, config: Config, own: str, here: str = "") -> Callable[[Key], str]:
    """Return what tells, in words, who may answer an open ask; nothing where whoever looks at it on the channel `here` knows."""
    of = answerers(index, served_operators(config))
    return lambda ask: answerer_words(of(ask), own, here)
