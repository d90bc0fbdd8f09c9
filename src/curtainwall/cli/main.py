"""The program `curtainwall`: finds and imports one command, and turns every error into one line and an exit code."""

import errno
import gc
import os
import sys
from importlib import import_module
from typing import NamedTuple, cast

from curtainwall import __version__
from curtainwall.cli.global_options import BadGlobalOption, is_verbose, take_global_options, wants_json

NAME = "curtainwall"
FAILED, USAGE, INTERRUPTED, PIPE_CLOSED = 1, 2, 130, 141


class CommandEntry(NamedTuple):
    """The module of a command, and its line in the overview."""

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
    "sessions": CommandEntry("sessions", "list, show, rename, fork, close, export, delete; raise budgets"),
    "agents": CommandEntry("agents", "list the agents; build and prune container images"),
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
            # A shell asks at each key press; importing typer alone would take too long.
            from curtainwall.cli.completion import complete

            return complete(arguments[1:])
        options, arguments = take_global_options(arguments)
        os.environ.update(options.environ)
        if is_verbose():
            from curtainwall.cli.verbose import log_more

            log_more()
        code = _run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Our reader is gone, so there is nobody to report to.
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

    def root(
        version: bool = typer.Option(False, "--version", "-V", help="Show the version and exit."),
        home: str = typer.Option("", "--home", metavar="DIR", help="Keep everything there.", show_default=False),  # noqa: ARG001 - for the help
        quiet: bool = typer.Option(False, "--quiet", "-q", help="Leave out hints and progress."),  # noqa: ARG001 - for the help
        verbose: bool = typer.Option(False, "--verbose", "-v", help="Say more about what happens."),  # noqa: ARG001 - for the help
    ) -> None:
        """Take `--version` beside other words, too; the help shows the other options, which were taken before."""
        if version:
            print(f"{NAME} {__version__}")
            raise SystemExit(0)

    app = typer.Typer(name=NAME, add_completion=False, no_args_is_help=True, rich_markup_mode=None, context_settings=_HELP)
    app.callback(help=_ABOUT)(root)
    for name, command in COMMANDS.items():
        # Import only the wanted command; the overview lists the others by name, so that `--help` stays fast.
        module = import_module(f"curtainwall.cli.commands.{command.module}") if name == wanted else None
        if command.is_group:
            target = module.app if module else typer.Typer(name=name)
            for subcommand in target.registered_commands:
                subcommand.cls = HelpedCommand
            app.add_typer(target, name=name, help=command.about, no_args_is_help=True)
        else:
            target = getattr(module, name.replace("-", "_")) if module else _placeholder
            app.command(name, cls=HelpedCommand, help=target.__doc__ or command.about, short_help=command.about)(target)
    group = cast("TyperGroup", get_command(app))
    # Keep the order of `COMMANDS`, which begins with a newcomer's first commands; typer puts groups last.
    group.commands = {name: group.commands[name] for name in COMMANDS}
    for subcommand in (command for it in group.commands.values() if isinstance(it, TyperGroup) for command in it.commands.values()):
        # The whole line; the library would cut it to the width beside the name.
        subcommand.short_help = (subcommand.help or "").strip().partition("\n")[0]
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
    try:
        result = group.main(arguments, prog_name=NAME, standalone_mode=False)
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):
            # The library treats a closed pipe as a failure, but we do not know whether the command failed.
            raise ended.__context__ from None
        raise
    return result if isinstance(result, int) else 0


def _wanted_path() -> str:
    """Return the command line's command, as far as we can recognise it."""
    first = next((word for word in sys.argv[1:] if word in COMMANDS), None)
    return NAME if first is None else f"{NAME} {first}"


_HELP = {"help_option_names": ["-h", "--help"]}
_ABOUT = """A session runtime for untrusted AI agents: one log, one gate, and a human wherever that human is.

Everything is kept in ~/.curtainwall, or where CURTAINWALL_HOME says, or --home, which wins. --home, -q and -v may also follow the command.
"""


def _placeholder() -> None:
    pass


class _Complaint(NamedTuple):
    """The message for an error, and the exit code."""

    message: str
    code: int = FAILED
    hint: str = ""


def _report_failure(error: Exception) -> int:
    import typer

    if isinstance(error, typer.TyperException) and (overview := error.format_message()).startswith("Usage:"):
        if not wants_json(sys.argv[1:]):
            print(overview, file=sys.stderr)
            return USAGE
        return _complain(_Complaint("there is no command", USAGE, f"see `{_wanted_path()} --help`"))
    return _complain(_complaint(error))


def _complaint(error: Exception) -> _Complaint:
    import typer

    if isinstance(error, BadGlobalOption):
        return _Complaint(str(error), USAGE)
    if isinstance(error, typer.TyperException):
        from curtainwall.cli.help import in_our_words

        context = getattr(error, "ctx", None)
        options = [word for option in context.command.params for word in option.opts] if context else ()
        path = context.command_path if context else _wanted_path()
        return _Complaint(in_our_words(error.format_message(), options), error.exit_code, f"see `{path} --help`")
    if isinstance(error, typer.Abort):
        return _Complaint("nothing was done")
    if _is_ours(error):
        return _Complaint(str(error), getattr(error, "exit_code", FAILED))
    if is_verbose():
        from curtainwall.cli.verbose import log_origin

        log_origin(error)
    if isinstance(error, OSError):
        message = f"{(error.strerror or type(error).__name__).lower()}{f': `{error.filename}`' if error.filename else ''}"
        return _Complaint(message, hint="make room on that disk, nothing that was there is lost" if error.errno == errno.ENOSPC else "")
    if isinstance(error, UnicodeEncodeError) and (words := [word for word in sys.argv[1:] if not _is_text(word)]):
        return _Complaint(f"`{words[0]}` is not valid {sys.getfilesystemencoding()}, the encoding of your locale", USAGE)
    message = f"a fault of ours: {type(error).__name__}: {error}"
    return _Complaint(message, hint="set CURTAINWALL_DEBUG=1 to see where, and please report it")


def _is_ours(error: Exception) -> bool:
    # If the error is ours, the model is already imported; import nothing for a message.
    errors = sys.modules.get("curtainwall.model.errors")
    return errors is not None and isinstance(error, errors.CurtainwallError)


def _is_text(word: str) -> bool:
    # Bytes that cannot be decoded become surrogates, which no encoding can hold.
    return not any("\ud800" <= letter <= "\udfff" for letter in word)


def _complain(complaint: _Complaint) -> int:
    """Print one line to stderr, as JSON if the command was to print JSON; return the exit code."""
    message, code, hint = complaint
    if wants_json(sys.argv[1:]):
        import json

        print(json.dumps({"error": {"message": message, **({"hint": hint} if hint else {}), "code": code}}), file=sys.stderr)
        return code
    line = f"{message}{'' if message.endswith('?') else ';'} {hint}" if hint else message
    # A message may quote an agent.
    inert = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in line)
    print(f"{NAME}: {inert}", file=sys.stderr)
    return code
