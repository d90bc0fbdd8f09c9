"""The names of files that run later by themselves, as data: which kind each is of, and what sets it off.

A name belongs here if a program acts on it without being asked to: because somebody opens or enters the directory, commits, pushes, or
starts a tool for another purpose. What a person runs on purpose does not (`Makefile`, `package.json`, `conftest.py`, a linter's
configuration), nor does what only chooses among programs that the user set up elsewhere (`.gitattributes`, `.nvmrc`).
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class LaterKind:
    """One kind of such files: what sets them off, and their names in lower case.

    A name stands for a file or directory so called at any depth, and for all in it. `a/b` is `b` directly in a directory `a`; one `*` in a
    name is any text.
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
