"""Who we are on a homeserver."""

import stat
from dataclasses import replace
from pathlib import Path

import pytest

from curtainwall.channels.matrix.homeserver import Account
from curtainwall.model import TryLater


def account(directory: Path) -> Account:
    return Account("https://example.org", "@wall:example.org", "WALL", directory, "seal", password="secret-word")


def test_a_token_is_kept_for_its_own_device_and_for_nobody_else_to_read(tmp_path: Path) -> None:
    ours = account(tmp_path)
    ours.store_token("t0k3n")
    assert ours.stored_token() == "t0k3n"
    assert replace(ours, device="OTHER").stored_token() is None
    assert replace(ours, homeserver="https://example.com").stored_token() is None
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}


def test_one_process_speaks_as_a_user(tmp_path: Path) -> None:
    with account(tmp_path).locked(), pytest.raises(TryLater, match=r"speaks as `@wall:example\.org` already"):
        replace(account(tmp_path), device="OTHER").locked().__enter__()
    with account(tmp_path).locked():
        pass


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    assert "secret-word" not in repr(account(tmp_path))
