"""Links that sign people in to the pages, and where sign-ins are kept."""

from curtainwall.channels.web.sign_ins import SignIns
from curtainwall.config.schema import Config
from curtainwall.config.web_people import web_operators
from curtainwall.host.home import Home
from curtainwall.model import Broken
from curtainwall.runtime import SystemClock
from curtainwall.serve.web.listener import require_listener


def sign_ins_of(home: Home, config: Config, run: str = "") -> SignIns:
    """Return the sign-ins of this house, the same for every process; codes are for one run of the pages' service."""
    return SignIns(home.root / "keys" / "web-sign-ins.json", SystemClock().now, config.web.signed_in * 1000, run)


def sign_in_link(home: Home, config: Config, user: str | None = None, run: str | None = None) -> str:
    """Return a link that signs a person in once; raise where that person may not enter, or where the link would not lead to us.

    Only the service itself, which holds the port, names its run.
    """
    operators = web_operators(config)
    user = user or min(operators)
    if user not in operators and user not in config.web.users:
        known = ", ".join(sorted(operators | {*config.web.users}))
        raise Broken(f"`{user}` is neither among `web.operators` nor `web.users` (now: {known}); add the name there")
    run = run or require_listener(home, config.web).run
    return f"{config.web.address}/sign-in?code={sign_ins_of(home, config, run).new_code(user)}"
