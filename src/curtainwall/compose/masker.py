"""The masker for judging or showing things without loading the rules."""

import os

from curtainwall.config.loader import load_config
from curtainwall.config.schema import Config
from curtainwall.config.secrets import existing_key, model_secrets
from curtainwall.facts import Masker
from curtainwall.host.home import Home
from curtainwall.model import Broken


def judging_masker(home: Home) -> Masker:
    """Return a masker for judging only, with our key if there is one; a missing key is not written."""
    return Masker(existing_key(home.mask_key) or os.urandom(32), _known_secrets(home))


def _known_secrets(home: Home) -> dict[str, str]:
    try:
        return model_secrets(load_config(home.config))
    except Broken:
        return model_secrets(Config.parse({}))
