"""Where secrets of the configuration lie: files that no agent may touch, and variables that no child of ours may have."""

from curtainwall.app.config import Config
from curtainwall.app.config_teams import team_files, team_variables
from curtainwall.app.credentials import credential_files, credential_variables
from curtainwall.app.model_keys import model_files, model_variables
from curtainwall.app.web_people import web_files


def secret_files(config: Config) -> tuple[str, ...]:
    """Return the files that hold secrets."""
    return (
        *credential_files(config),
        *model_files(config),
        *config.webhooks.files,
        *config.matrix.files,
        *web_files(config),
        *team_files(config.teams),
    )


def secret_variables(config: Config) -> tuple[str, ...]:
    """Return the variables that hold secrets."""
    return (
        *model_variables(config),
        *credential_variables(config),
        *config.webhooks.variables,
        *config.matrix.variables,
        *team_variables(config.teams),
    )
