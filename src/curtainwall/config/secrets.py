"""Where a secret of the configuration comes from: the keys that tables of credentials and of keys have in common."""

from typing import Annotated

from pydantic import Field, model_validator

from curtainwall.config.kinds import FileName, Section, written


class SecretSection(Section):
    """A secret, from exactly one of `env`, `file`, `keyring` and `command`."""

    env: str | None = Field(None, min_length=1, description="the environment variable that holds it")
    file: FileName | None = Field(None, description="the file that holds it and nothing else; no agent can touch that file")
    keyring: Annotated[str, written(r".+/[^/]+", "write the entry as `SERVICE/USER`")] | None = Field(
        None, description="the entry of your keyring that holds it, as `SERVICE/USER`"
    )
    command: tuple[str, ...] = Field((), description='a program that prints it, as `["pass", "show", "github"]`; its first line counts')

    @model_validator(mode="after")
    def _one_place(self) -> "SecretSection":
        if sum(map(bool, (self.env, self.file, self.keyring, self.command))) != 1:
            raise ValueError("write exactly one of `env`, `file`, `keyring` and `command`")
        return self
