"""The program `curtainwall`: finds the command, imports that one alone, and turns every fault into one line and an exit code."""

import errno
import gc
import os
import sys
from importlib import import_module
from typing import NamedTuple, cast

from curtainwall import __version__

NAME = "curtainwall"
FAILED, USAGE, INTERRUPTED, PIPE_CLOSED = 1, 2, 130, 141


class CommandEntry(NamedTuple):
    """Where a command lives, and what the overview says of it."""

    module: str
    about: str
    is_group: bool = True


COMMANDS = {
    "start": CommandEntry("start", "work with an agent: a conversation, or one task", is_group=False),
    "serve": CommandEntry("serve", "run the channels of the configuration, and the web", is_group=False),
    "approvals": CommandEntry("approvals", "list what waits for an answer"),
    "approve": CommandEntry("answers", "grant an approval", is_group=False),
    "deny": CommandEntry("answers", "deny an approval", is_group=False),
    "grants": CommandEntry("grants", "list and revoke answers that stand"),
    "sessions": CommandEntry("sessions", "list, show, rename, fork, export, delete; raise budgets"),
    "agents": CommandEntry("agents", "list the agents; build the images of those in containers"),
    "web": CommandEntry("web", "sign people in to the pages in a browser, and out"),
    "cron": CommandEntry("cron", "list jobs, let one fire now, see what became of them"),
    "teams": CommandEntry("teams", "ask teams, tell them something, see how it goes"),
    "skills": CommandEntry("skills", "list and show the instructions that agents can load"),
    "memory": CommandEntry("memory", "list, show, forget what agents noted for later"),
    "tools": CommandEntry("tools", "list tools and what their arguments mean"),
    "servers": CommandEntry("servers", "list, add, test, annotate, remove tool servers of others"),
    "hooks": CommandEntry("hooks", "list your hooks, trust those of a workspace"),
    "mcp": CommandEntry("mcp", "let an MCP client talk to teams, on stdin and stdout", is_group=False),
    "mcp-proxy": CommandEntry("mcp_proxy", "let an MCP client use a session, on stdin and stdout", is_group=False),
    "policy": CommandEntry("policy", "judge calls, list rules, test and import them"),
    "audit": CommandEntry("audit", "verify the log, follow a session's verdicts"),
    "config": CommandEntry("config", "show the configuration, or write one to start from"),
    "completion": CommandEntry("completion", "print a script that completes words in bash, zsh, fish", is_group=False),
    "doctor": CommandEntry("doctor", "say which guarantees hold on this machine", is_group=False),
}


def main() -> int:
    """Run the program and return its exit code."""
    arguments = sys.argv[1:]
    if arguments in (["--version"], ["-V"]):
        print(f"{NAME} {__version__}")
        return 0
    try:
        if arguments[:1] == ["--complete"]:
            # A shell asks, at the press of a key: typer alone would take longer than the answer.
            from curtainwall.cli.completion import complete

            return complete(arguments[1:])
        code = _run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read us has gone; there is nobody to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except Exception as error:
        if os.environ.get("CURTAINWALL_DEBUG"):
            raise
        return _report_failure(error)
    return code


def _run(arguments: list[str]) -> int:
    import typer
    from typer.core import TyperGroup
    from typer.main import get_command

    from curtainwall.cli.help import HelpedCommand

    wanted = next((word for word in arguments if not word.startswith("-")), None)

    def root(version: bool = typer.Option(False, "--version", "-V", help="Show the version and exit.")) -> None:
        """Take `--version` beside other words, too."""
        if version:
            print(f"{NAME} {__version__}")
            raise SystemExit(0)

    app = typer.Typer(name=NAME, add_completion=False, no_args_is_help=True, rich_markup_mode=None, context_settings=_HELP)
    app.callback(help=_ABOUT)(root)
    for name, command in COMMANDS.items():
        # Only the wanted command is imported; the others stand in the overview by name, so that `--help` stays fast.
        module = import_module(f"curtainwall.cli.commands.{command.module}") if name == wanted else None
        if command.is_group:
            made = module.app if module else typer.Typer(name=name)
            for below in made.registered_commands:
                below.cls = HelpedCommand
            app.add_typer(made, name=name, help=command.about, no_args_is_help=True)
        else:
            made = getattr(module, name.replace("-", "_")) if module else _elsewhere
            app.command(name, cls=HelpedCommand, help=made.__doc__ or command.about, short_help=command.about)(made)
    group = cast("TyperGroup", get_command(app))
    # The overview as it is written above, where a newcomer's first commands come first; typer puts groups last.
    group.commands = {name: group.commands[name] for name in COMMANDS}
    for below in (command for it in group.commands.values() if isinstance(it, TyperGroup) for command in it.commands.values()):
        # The whole line: the library would cut it to what fits beside the name.
        below.short_help = (below.help or "").strip().partition("\n")[0]
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
    try:
        told = group.main(arguments, prog_name=NAME, standalone_mode=False)
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):
            # The library takes a reader that has gone for a failure; what became of the command is not known.
            raise ended.__context__ from None
        raise
    return told if isinstance(told, int) else 0


def _wanted_path() -> str:
    """Return the command as far as it can be told from what was written."""
    first = next((word for word in sys.argv[1:] if word in COMMANDS), None)
    return NAME if first is None else f"{NAME} {first}"


_HELP = {"help_option_names": ["-h", "--help"]}
_ABOUT = """A session runtime for untrusted AI agents: one log, one gate, and a human wherever that human is.

Everything is kept in ~/.curtainwall, or where CURTAINWALL_HOME says.
"""


def _elsewhere() -> None:
    pass


def _report_failure(error: Exception) -> int:
    import typer

    if isinstance(error, typer.TyperException):
        message = error.format_message()
        if message.startswith("Usage:"):
            print(message, file=sys.stderr)
            return USAGE
        from curtainwall.cli.help import usage_words

        context = getattr(error, "ctx", None)
        options = [word for option in context.command.params for word in option.opts] if context else ()
        _complain(usage_words(message, context.command_path if context else _wanted_path(), options))
        return error.exit_code
    if isinstance(error, typer.Abort):
        _complain("nothing was done")
    elif _is_ours(error):
        _complain(str(error))
        return getattr(error, "exit_code", FAILED)
    elif isinstance(error, OSError):
        room = "; make room on that disk, nothing that was there is lost" if error.errno == errno.ENOSPC else ""
        _complain(f"{(error.strerror or type(error).__name__).lower()}{f': `{error.filename}`' if error.filename else ''}{room}")
    else:
        _complain(f"a fault of ours: {type(error).__name__}: {error}; set CURTAINWALL_DEBUG=1 to see where, and please report it")
    return FAILED


def _is_ours(error: Exception) -> bool:
    # What raised it has imported the model; nothing is imported for the sake of a message.
    errors = sys.modules.get("curtainwall.model.errors")
    return errors is not None and isinstance(error, errors.CurtainwallError)


def _complain(message: str) -> None:
    """Print one line; a message may quote what an agent wrote, so nothing in it can move the cursor."""
    inert = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in message)
    print(f"{NAME}: {inert}", file=sys.stderr)
