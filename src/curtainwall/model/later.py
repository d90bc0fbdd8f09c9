"""Names of files that run later by themselves: hooks, editor and agent settings, CI and start-up files."""

# A directory of that name and all in it.
_RUNNING_DIRECTORIES = frozenset(
    """
    .git git~1 .githooks .husky .vscode .idea .fleet .zed .devcontainer .claude .codex .cursor .gemini .opencode
    .windsurf .circleci .buildkite .direnv
    """.split()
)
# Shells, editors, debuggers, package managers and interpreters read these without being told; agents obey the last ones.
_RUNNING_FILES = frozenset(
    """
    .envrc .mcp.json .pre-commit-config.yaml .pre-commit-config.yml lefthook.yml .lefthook.yml lefthook.yaml .lefthook.yaml
    .gitlab-ci.yml .travis.yml .drone.yml azure-pipelines.yml jenkinsfile .gitmodules .gitconfig .hgrc
    .npmrc .yarnrc .yarnrc.yml .pnpmfile.cjs .pnpmfile.mjs .mise.toml mise.toml .tool-versions .autoenv .env.sh
    .bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zshenv .zprofile .zlogin .zlogout .kshrc .mkshrc
    .login .logout .cshrc .tcshrc .inputrc .xprofile .xinitrc .xsession .pam_environment config.fish
    .vimrc .gvimrc .exrc .nvimrc .nvim.lua .emacs .dir-locals.el .gdbinit .lldbinit .pdbrc .pythonrc.py .rprofile .irbrc
    sitecustomize.py usercustomize.py opencode.json .aider.conf.yml .cursorrules .windsurfrules
    claude.md claude.local.md agents.md gemini.md
    """.split()
)
_RUNNING_ENDINGS = (".git", ".pth", ".code-workspace")
# Of `.github` only what runs, or what an agent obeys; the directory itself, because a move could bring those in.
_GITHUB = frozenset({"workflows", "actions", "copilot-instructions.md", "instructions", "prompts"})


def runs_later(path: str, workspace: str) -> bool:
    """Tell whether changing this path can make something run later by itself; names are compared without case.

    Inside the workspace only the part below it counts: a project that happens to lie in a directory `.claude` is still a project.
    """
    told = path[len(workspace) :] if path == workspace or path.startswith(f"{workspace.rstrip('/')}/") else path
    parts = [part.casefold() for part in told.split("/") if part]
    for at, part in enumerate(parts):
        if part in _RUNNING_DIRECTORIES or part.endswith(_RUNNING_ENDINGS):
            return True
        if part == ".github" and (at + 1 == len(parts) or parts[at + 1] in _GITHUB):
            return True
    return bool(parts) and parts[-1] in _RUNNING_FILES
