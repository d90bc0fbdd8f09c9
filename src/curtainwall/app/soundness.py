"""Whether a configuration that can be read can also be used: its lists, servers, credentials and hooks, apart from the rules beside it."""

import os

from curtainwall.app.config import Config
from curtainwall.app.config_lists import lists_of
from curtainwall.app.home import Home
from curtainwall.app.rule_files import rule_sources
from curtainwall.app.wiring import set_up
from curtainwall.model import CurtainwallError
from curtainwall.policy import Lists, Protection, load


def fault_in_config(home: Home, config: Config) -> str:
    """Return why nothing could be judged with this configuration, or nothing where it is sound or only the rules are at fault."""
    try:
        lists_of(home.config, config)
    except CurtainwallError as fault:
        return str(fault)
    try:
        set_up(environ={**os.environ, "CURTAINWALL_HOME": str(home.root)})
    except CurtainwallError as fault:
        return "" if _rules_are_at_fault(home) else str(fault)
    return ""


def _rules_are_at_fault(home: Home) -> bool:
    try:
        load(rule_sources(home), lists=Lists(), protection=Protection())
    except CurtainwallError:
        return True
    return False
