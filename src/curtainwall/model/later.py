"""Files that run later without being started: a table of their names, and a record of those that were set aside in a project.

A name belongs here if some program acts on it unasked: because a person opens or enters the directory, commits, pushes, or starts a tool
for another purpose. Files that a person runs on purpose (`Makefile`, `package.json`, `conftest.py`, a linter's configuration) do not
belong here, nor do those that only choose among programs that the user set up elsewhere (`.gitattributes`, `.nvmrc`).
"""

import re
from collections.abc import Collection, Sequence
from typing import Final

from pydantic import JsonValue, ValidationError

from curtainwall.model.events import AnyEvent
from curtainwall.model.events.work import ExtensionNoted
from curtainwall.model.frozen import Frozen
from curtainwall.model.ids import Millis
from curtainwall.model.records import record


@record
class LaterKind:
    """One kind of such files: what triggers them, and their names in lower case.

    A name matches a file or directory at any depth, with everything in it. `a/b` is `b` directly in a directory `a`; one `*` in a name
    matches any text.
    """

    name: str
    trigger: str
    names: tuple[str, ...]


def _kind(name: str, trigger: str, names: str) -> LaterKind:
    return LaterKind(name, trigger, tuple(names.split()))


LATER_KINDS: Final = (
    _kind(
        "version control", "any command of git or its kin runs their hooks and the programs in their settings",
        """
        .git git~1 *.git .gitmodules .gitconfig .config/git .hg .hgrc .svn .jj .bzr .sl .fslckout _fossil_ _darcs .pijul .repo
        """,
    ),
    _kind(
        "commit hooks", "a commit, a push or a merge runs what they name",
        """
        .githooks .git-hooks .husky .huskyrc* .pre-commit-config.yaml .pre-commit-config.yml .pre-commit-hooks.yaml .lefthook
        .lefthook-local lefthook.* .lefthook.* lefthook-local.* .lefthook-local.* .overcommit .overcommit.yml .lintstagedrc*
        lint-staged.config.* .simple-git-hooks.* simple-git-hooks.* captainhook.json grumphp.yml grumphp.yaml hk.pkl
        """,
    ),
    _kind(
        "editors", "opening the directory or a file in it runs tasks, language servers, plugins and settings that are code",
        """
        .vscode *.code-workspace .idea .fleet .zed .config/zed .helix .config/helix .vs .nova .lapce .theia .atom .luarc.json .vim .vimrc
        .lvimrc .local.vimrc .gvimrc _vimrc .exrc _exrc .nvim .nvimrc .nvim.lua .lazy.lua .neoconf.json .nlsp-settings .config/nvim .emacs
        .emacs.d .dir-locals.el .dir-locals-2.el .kak .kakrc *.sublime-project .kateproject* .kateconfig .kate .externaltoolbuilders
        .project
        """,
    ),
    _kind(
        "development environments", "opening the project in a container or a hosted editor builds and starts what they name",
        """
        .devcontainer .devcontainer.json devcontainer.json .gitpod .gitpod.yml .gitpod.dockerfile .devfile.yaml devfile.yaml .replit
        replit.nix .idx .codesandbox .stackblitzrc devbox.json devenv.nix devenv.yaml devenv.local.nix
        """,
    ),
    _kind(
        "agents", "an agent that works in the directory obeys them, or runs the hooks and tool servers that they name",
        """
        agents.md agents.override.md agents.local.md agent.md .agents .agent .mcp.json mcp.json .mcp .rules .curtainwall claude.md
        claude.local.md .claude .claude.json .codex codex.md gemini.md .gemini .qwen qwen.md .opencode .opencode.json* opencode.json*
        .cursor .cursorrules .windsurf .windsurfrules .codeium .clinerules* .cline .roo .roorules* .roomodes .kilocode .kilocoderules
        .kilocodemodes .continue .continuerules .continuerc.json .aider.* .goose .goosehints .amp .ampcode .junie .kiro .trae .augment
        .augment-guidelines .augmentrules .amazonq .qodo .crush .crush.json crush.json crush.md .factory .openhands
        .openhands_instructions .plandex .tabnine .zencoder .aiassistant .firebender firebender.json .ruler .rulesync .serena .warp
        warp.md jules.md .kimi .grok .cody .sourcegraph .github/copilot-instructions.md .github/instructions .github/prompts
        .github/chatmodes .github/agents .github/skills .github/hooks
        """,
    ),
    _kind(
        "shells", "entering the directory, or starting a shell, runs them or puts programs of theirs first on the path",
        """
        .envrc .envrc.local .envrc.private .direnv .direnvrc .config/direnv .env.sh .autoenv* .shadowenv.d .ondirrc .localrc
        .tool-versions .mise .mise.toml .mise.*.toml mise.toml mise.*.toml .config/mise .config/mise.toml .rtx .rtx.toml .rtx.*.toml
        .asdfrc .bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zshenv .zprofile .zlogin .zlogout .kshrc
        .mkshrc .login .logout .cshrc .tcshrc .inputrc .xprofile .xinitrc .xsession .xsessionrc .pam_environment config.fish .config/fish
        .config/environment.d .config/autostart .config/systemd .screenrc .tmux.conf .config/tmux .ssh .gnupg
        """,
    ),
    _kind(
        "continuous integration", "a push runs them on other machines, where they have the project's keys",
        """
        .github/workflows .github/actions .forgejo/workflows .forgejo/actions .gitea/workflows .gitea/actions .gitlab-ci.yml
        .gitlab-ci.yaml *.gitlab-ci.yml .gitlab/ci .gitlab/agents .circleci .buildkite .buildkite.yml .travis.yml .drone.* .woodpecker
        .woodpecker.* azure-pipelines*.yml azure-pipelines*.yaml .azure-pipelines .azuredevops .vsts-ci.yml bitbucket-pipelines.yml
        bitbucket-pipelines.yaml jenkinsfile* .jenkins appveyor.yml .appveyor.yml appveyor.yaml .appveyor .cirrus.yml .cirrus.yaml
        .cirrus.star .semaphore .tekton .teamcity .harness .builds .build.yml .build.yaml .zuul.yaml .zuul.d zuul.yaml zuul.d
        .taskcluster.yml .evergreen.yml .vela .vela.yml .onedev-buildspec.yml .space.kts buildspec.yml buildspec.yaml cloudbuild.yaml
        cloudbuild.yml cloudbuild.json wercker.yml codefresh.yml .codefresh codemagic.yaml bitrise.yml screwdriver.yaml codeship-steps.*
        codeship-services.yml .scrutinizer.yml .rultor.yml .mergify.yml .github/mergify.yml *.gocd.yaml *.gocd.json .readthedocs.yml
        .readthedocs.yaml netlify.toml vercel.json amplify.yml render.yaml
        """,
    ),
    _kind(
        "interpreters and debuggers", "starting one, for whatever purpose, runs them first",
        """
        sitecustomize.py usercustomize.py *.pth .pythonrc .pythonrc.py .pythonstartup .pdbrc .pdbrc.py .ipython ipython_config.py .jupyter
        .gdbinit .gdbearlyinit .lldbinit* .radare2rc .irbrc .pryrc .rprofile .renviron startup.jl .ghci .ocamlinit .iex.exs .erlang .guile
        .perldb .sqliterc .psqlrc .mongorc.js .mongoshrc.js .user.ini .htaccess
        """,
    ),
    _kind(
        "package managers and builds", "any of their commands, also one that an editor gives, loads programs or sources that they name",
        """
        .npmrc .yarnrc .yarnrc.yml .yarn/releases .yarn/plugins .pnpmfile.cjs .pnpmfile.mjs .pnpmfile.js bunfig.toml .bunfig.toml
        .cargo/config .cargo/config.toml rust-toolchain rust-toolchain.toml .mvn gradle/wrapper .gradle/init.d .gradle/init.gradle
        .gradle/init.gradle.kts .gradle/gradle.properties .bazelrc .bazeliskrc .bazelversion .buckconfig .buckconfig.local .sbtopts
        .jvmopts .sbtrc .bundle .gemrc .condarc .pydistutils.cfg pip.conf nuget.config .terraformrc
        """,
    ),
)  # fmt: skip
"""Every kind, in the order in which the documentation lists them."""


_NAMES: Final = frozenset(name for kind in LATER_KINDS for name in kind.names if not {"/", "*"} & set(name))
_PAIRS: Final = frozenset(tuple(name.split("/")) for kind in LATER_KINDS for name in kind.names if "/" in name)
_HOLDERS: Final = frozenset(above for above, _ in _PAIRS)
_PATTERNS: Final = re.compile(
    "|".join(re.escape(name).replace(r"\*", ".*") for kind in LATER_KINDS for name in kind.names if "*" in name), re.DOTALL
)
# A file that was set aside keeps its name with this suffix, so that it no longer counts as one that runs.
_SET_ASIDE: Final = re.compile(r"\.held\d*\Z")


def runs_later(path: str, workspace: str) -> bool:
    """Tell whether changing this path can make something run later unasked; names are compared without case.

    Inside the workspace only the part below it counts: a project inside a directory `.claude` is still a project. A directory of which only
    a part runs counts too, because a move could bring that part in.
    """
    below = path[len(workspace) :] if path == workspace or path.startswith(f"{workspace.rstrip('/')}/") else path
    above = ""
    for name in below.split("/"):
        if not name:
            continue
        if is_later_name(name, above):
            return True
        above = name
    return holds_later_names(above)


def is_later_name(name: str, above: str = "") -> bool:
    """Tell whether an entry of this name, in a directory called `above`, runs later unasked."""
    name = name.casefold()
    if name in _NAMES or (above.casefold(), name) in _PAIRS:
        return True
    return _PATTERNS.fullmatch(name) is not None and _SET_ASIDE.search(name) is None


def holds_later_names(name: str) -> bool:
    """Tell whether something in a directory of this name would run later, although not the directory as a whole."""
    return name.casefold() in _HOLDERS


def is_git_directory(names: Collection[str]) -> bool:
    """Tell whether git would treat a directory with these entries as a repository, and obey its config."""
    return "HEAD" in names and (("objects" in names and "refs" in names) or "commondir" in names)


HELD: Final = "held"


class HeldFile(Frozen):
    """One file that was set aside: its old and new place (None if it could not be moved), and its state at that time."""

    path: str
    aside: str | None
    likeness: str = ""
    is_replaced: bool = False
    """The previous file was put back in its place."""


def held_noted(files: Sequence[HeldFile], at: Millis, *, is_reported: bool = False) -> ExtensionNoted:
    """Return the event that records files that were set aside; with `is_reported`, people were notified by other means."""
    listed: list[JsonValue] = [file.model_dump(mode="json") for file in files]
    return ExtensionNoted(at=at, extension=HELD, data={"files": listed, "told": is_reported})


def held_files(event: AnyEvent, *, unreported: bool = False) -> tuple[HeldFile, ...]:
    """Return the files that an event records as set aside, empty for other events; with `unreported`, only if people must still be told."""
    if not isinstance(event, ExtensionNoted) or event.extension != HELD or (unreported and event.data.get("told")):
        return ()
    listed = event.data.get("files")
    try:
        return tuple(HeldFile.model_validate(each) for each in listed) if isinstance(listed, list) else ()
    except ValidationError:
        return ()
