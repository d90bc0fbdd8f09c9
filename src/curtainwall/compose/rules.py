"""Rule files on this machine: those of the house, and those that one team, job or webhook has besides."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from posixpath import normpath

from curtainwall.config.loader import line_of
from curtainwall.config.plain_files import read_plain
from curtainwall.config.schema import Config
from curtainwall.host.home import Home
from curtainwall.model import Broken
from curtainwall.policy import Lists, Policy, RuleCard, Source, shipped
from curtainwall.session import Whose, table_of

Load = Callable[[Sequence[Source]], Policy]
"""Makes a policy of rule files, with the lists and protected paths of the house."""


def rule_sources(home: Home, policy_files: Iterable[Path] = ()) -> tuple[Source, ...]:
    """Return the rule files of the house: those that ship, the user's own, and those that were given."""
    try:
        own = sorted(path for path in home.policy.iterdir() if path.suffix.lower() == ".cedar" and not path.name.startswith("."))
    except FileNotFoundError:
        if home.policy.is_symlink():
            raise Broken(f"`{home.policy}` is a link that leads nowhere; nothing is judged without the rules in it") from None
        own = []
    except OSError as error:
        raise Broken(f"the rules in `{home.policy}` cannot be read: {error.strerror}; nothing is judged without them") from None
    return (*shipped(), *(_source(path, path.name) for path in own), *(_source(path, str(path)) for path in policy_files))


def known_in(config: Config) -> frozenset[Whose]:
    """Return the teams, jobs and webhooks that are configured."""
    return frozenset(_told(config))


def own_files(config: Config) -> dict[Whose, Path]:
    """Return which team, job and webhook has a rule file of its own, and where that is."""
    return {whose: Path(normpath(Path(file).expanduser())) for whose, file in _told(config).items() if file is not None}


def own_policies(home: Home, config: Config, sources: Sequence[Source], load: Load) -> dict[Whose, Policy]:
    """Return what holds for each with a file of its own: the rules of the house, and whatever the file forbids besides."""
    made: dict[Path, Policy] = {}
    found: dict[Whose, Policy] = {}
    for whose, file in own_files(config).items():
        try:
            if file.resolve().parent == home.policy.resolve():
                raise Broken(f"`{file}` lies among the rules that hold for all; put it into another directory")
            if file not in made:
                made[file] = load((*sources, _source(file, str(file), narrows=True)))
        except Broken as fault:
            raise Broken(f"`{table_of(whose)}.policy`: {fault}") from None
        found[whose] = made[file]
    return found


def own_cards(policy: Policy, others: Mapping[Whose, Policy]) -> dict[RuleCard, str]:
    """Return the rules that do not hold for all, and for whom each holds: `job nightly`, `team backend, job weekly`."""
    found: dict[RuleCard, list[str]] = {}
    for (kind, name), other in others.items():
        for card in other.rules:
            if policy.card(card.id) is None:
                found.setdefault(card, []).append(f"{kind} {name}")
    return {card: ", ".join(names) for card, names in found.items()}


def _told(config: Config) -> dict[Whose, str | None]:
    return {
        **{("team", name): team.policy for name, team in config.teams.items()},
        **{("job", name): job.policy for name, job in config.cron.items()},
        **{("webhook", name): hook.policy for name, hook in config.webhooks.hooks.items()},
    }


def _source(path: Path, name: str, *, narrows: bool = False) -> Source:
    try:
        return Source(name, read_plain(path).decode(), user=True, narrows=narrows)
    except OSError as error:
        raise Broken(f"the rule file `{path}` cannot be read: {error.strerror}; correct it or take it away") from None
    except UnicodeDecodeError as error:
        raise Broken(f"the rule file `{path}` is not UTF-8 at byte {error.start}; save it as UTF-8 text") from None


def lists_of(path: Path, config: Config) -> Lists:
    """Return the lists of a configuration that was read from a file; raise `Broken`, which names it."""
    told = config.lists
    try:
        return Lists(told.hosts, told.remotes, told.push_remotes, told.teams)
    except Broken as fault:
        key = str(fault).split("`")[1]
        raise Broken(f"`{path}`: {_line(path, key)}{fault}") from None


def _line(path: Path, key: str) -> str:
    try:
        found = line_of(path.read_text(encoding="utf-8"), key.split("."))
    except (OSError, UnicodeDecodeError):
        return ""
    return "" if found is None else f"line {found}: "
