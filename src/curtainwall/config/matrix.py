"""The table `[matrix]`: the account, its homeserver, the rooms, and the people who may talk there."""

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, model_validator

from curtainwall.config.fields import DirectoryName, FileName, Section, matches

UserName = Annotated[str, matches(r"@[^\s:]+:\S+", "write a Matrix user as `@ann:example.org`")]
_TalkerName = Annotated[str, matches(r"@[^\s:]+:\S+|\*|\*:\S+", 'write `"@ann:example.org"`, `"*:example.org"` or `"*"`')]
_RoomName = Annotated[str, matches(r"!\S+", "write a room by its id, as `!abc:example.org`; its settings show it")]
_Variable = Annotated[str, matches(r"[A-Za-z_][A-Za-z0-9_]*", "write the name of a variable, as `MATRIX_PASSWORD`")]
_Pin = Annotated[
    str, matches(r"@[^\s:]+:\S+ [A-Za-z0-9+/ ]{43,60}", "write a device as the user and its fingerprint: `@ann:example.org abcd efgh …`")
]


class MatrixSection(Section):
    """The Matrix channel (docs/matrix.md); it is served where a homeserver is named. `[channels.matrix]` names its operators."""

    homeserver: Annotated[str, matches(r"https?://[^/\s]+/?", "write a URL such as `https://matrix.example.org`")] | None = Field(
        None, description="the homeserver's URL"
    )
    user: UserName | None = Field(None, description="the user that we are there: `@wall:example.org`")
    device: Annotated[str, matches(r"[A-Za-z0-9_-]{1,64}", "a device is named with letters, digits, `_` and `-`")] = Field(
        "CURTAINWALL", description="the device that is ours; its keys stay in `matrix/` in the home"
    )
    password_env: _Variable | None = Field(None, alias="password-env", description="the variable that holds the password")
    password_file: FileName | None = Field(None, alias="password-file", description="the file that holds the password and nothing else")
    token_env: _Variable | None = Field(None, alias="token-env", description="the variable that holds an access token of that device")
    token_file: FileName | None = Field(None, alias="token-file", description="the file that holds an access token of that device")
    rooms: tuple[_RoomName, ...] = Field((), description="the rooms to be in; empty, every room that an operator invites us to")
    users: tuple[_TalkerName, ...] = Field(
        (), description='who may talk besides the operators: `"@bob:example.org"`, `"*:example.org"`, `"*"`'
    )
    trust_homeserver: bool = Field(
        False,
        alias="trust-homeserver",
        description="also take reactions, and slash words in rooms without encryption; whoever runs the homeserver can then answer asks",
    )
    devices: tuple[_Pin, ...] = Field(
        (),
        description='the only devices of some users that count and are sent keys, by fingerprint: `"@ann:example.org abcd efgh …"`',
    )
    workspace: DirectoryName | None = Field(None, description="the project that sessions of rooms work in; without one, each has its own")

    @property
    def pinned(self) -> Mapping[str, frozenset[str]]:
        """Return the pinned fingerprints by user; for these users no other device counts."""
        by_user: dict[str, set[str]] = {}
        for pin in self.devices:
            user, _, fingerprint = pin.partition(" ")
            by_user.setdefault(user, set()).add(re.sub(r"\s", "", fingerprint))
        return {user: frozenset(fingerprints) for user, fingerprints in by_user.items()}

    @property
    def files(self) -> tuple[str, ...]:
        """Return the files that hold secrets, which no agent may touch."""
        return tuple(file for file in (self.password_file, self.token_file) if file)

    @property
    def variables(self) -> tuple[str, ...]:
        """Return the variables that hold secrets, which no child of ours may have."""
        return tuple(name for name in (self.password_env, self.token_env) if name)

    @model_validator(mode="after")
    def _check_consistency(self) -> "MatrixSection":
        if self.homeserver is None:
            return self
        if self.user is None:
            raise ValueError("`user` is missing; write who we are there, as `@wall:example.org`")
        if sum(map(bool, (self.password_env, self.password_file, self.token_env, self.token_file))) != 1:
            raise ValueError("write exactly one of `password-env`, `password-file`, `token-env` and `token-file`")
        if any(len(fingerprint) != 43 for fingerprints in self.pinned.values() for fingerprint in fingerprints):
            raise ValueError("`devices`: a fingerprint has 43 letters; a client's session settings show it as `Session key`")
        return self
