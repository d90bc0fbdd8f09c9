"""Files of the configuration that are no plain files: refused in words, and never waited for."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from curtainwall.compose.setup import load_setup
from curtainwall.config.loader import load_config, read_plain
from curtainwall.config.web_people import web_tokens
from curtainwall.model import Broken
from tests.support.in_process import Places

Make = Callable[[Path], None]


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


OTHERS = pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, device], ids=["pipe", "directory", "device"])
JOB = '[cron.nightly]\nschedule = "0 3 * * *"\ninstructions = "go"\npolicy = "NAMED"\n'


def test_a_plain_file_is_read_also_through_a_link_and_a_bigger_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to("file")
    assert read_plain(tmp_path / "link", 5) == b"12345"
    with pytest.raises(OSError, match="it is bigger than 4 bytes"):
        read_plain(tmp_path / "link", 4)


@OTHERS
def test_what_is_no_plain_file_is_never_read(tmp_path: Path, make: Make) -> None:
    make(tmp_path / "it")
    with pytest.raises(OSError, match="it is not a regular file"):
        read_plain(tmp_path / "it")


@OTHERS
@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("", r"the rule file `\S+/extra.cedar` cannot be read: it is not a regular file; correct it"),
        (JOB, r"`cron.nightly.policy`: the rule file `\S+/named` cannot be read: it is not a regular file"),
        ('[hooks]\nfile = "NAMED"', r"the hooks in `\S+/named` cannot be read: it is not a regular file"),
    ],
    ids=["house", "job", "hooks"],
)
def test_rules_and_hooks_are_plain_files(places: Places, make: Make, config: str, words: str) -> None:
    (places.home / "policy").mkdir(parents=True)
    named = places.user / "named" if config else places.home / "policy" / "extra.cedar"
    make(named)
    (places.home / "config.toml").write_text(config.replace("NAMED", str(named)))
    with pytest.raises(Broken, match=words):
        load_setup()


@OTHERS
def test_the_configuration_and_tokens_are_plain_files(places: Places, make: Make) -> None:
    places.home.mkdir()
    make(places.user / "it")
    (places.home / "config.toml").symlink_to(places.user / "it")
    with pytest.raises(Broken, match="cannot be read: it is not a regular file"):
        load_setup()
    (places.home / "config.toml").unlink()
    (places.home / "config.toml").write_text(f'[web]\ntokens = {{ann = "{places.user / "it"}"}}\n')
    assert web_tokens(load_config(places.home / "config.toml")) == {}
