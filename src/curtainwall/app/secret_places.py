"""Where secrets of the configuration lie: files that no agent may touch, and variables that no child of ours may have."""

from curtainwall.app.config import Config
from curtainwall.app.credentials import credential_files, credential_variables
from curtainwall.app.model_keys import model_files, model_variables


def secret_files(config: Config) -> tuple[str, ...]:
    """Return the files that hold secrets."""
    return (*credential_files(config), *model_files(config), *config.webhooks.files)


def secret_variables(config: Config) -> tuple[str, ...]:
    """Return the variables that hold secrets."""
    return (*model_variables(config), *credential_variables(config), *config.webhooks.variables)
