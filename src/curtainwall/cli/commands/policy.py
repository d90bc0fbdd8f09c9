"""`curtainwall policy`: judge and explain calls, list rules, and test and import them."""

import json
import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from curtainwall.cli.modes import parse_mode
from curtainwall.cli.screen import (
    Misuse,
    Output,
    OutputOption,
    columns,
    hint,
    note,
    paint,
    require_directory,
    show,
    show_json,
    verdict_word,
)
from curtainwall.compose.masker import judging_masker
from curtainwall.compose.policy import rule_sources
from curtainwall.compose.setup import Setup, load_setup
from curtainwall.compose.tools import judged_tools
from curtainwall.compose.trial import (
    INVALID,
    Judge,
    TrialResult,
    explain_trial,
    hooks_for_call,
    judge_for,
    read_call,
    read_lines,
    refuse_all,
    workspace_for,
)
from curtainwall.facts import read_json
from curtainwall.host.home import Home, find_home, private_directory, user_homes
from curtainwall.model import (
    BadCall,
    Broken,
    CommandRefused,
    CurtainwallError,
    Mode,
    denial,
    in_order,
)
from curtainwall.policy import Lists, Policy, Protection, RuleCard, RuleSource, labels_of, load
from curtainwall.session import Rules, inert

if TYPE_CHECKING:
    # Start-up time: explaining a verdict needs neither a corpus nor the import of permissions.
    from curtainwall.policy import Result, Trial


def run_trials(home: Home, file: Path, policy_files: list[Path]) -> "tuple[Result, ...]":
    """Return the result of every line of a corpus, under the rules that ship, the user's own, and `policy_files`."""
    # Start-up time: as above.
    from curtainwall.policy import Judged, judge_trial, read_corpus, run_corpus

    sources = rule_sources(home, policy_files)
    tools = judged_tools(home, judging_masker(home))
    try:
        trials = read_corpus(file.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise Broken(f"`{file}` is not UTF-8; save it as UTF-8 text") from None
    except Broken as fault:
        raise Broken(f"`{file}`: {fault}") from None
    if not trials:
        # Without expected verdicts nothing is tested, so passing would be misleading.
        raise Broken(f"`{file}` holds no expected verdict; docs/policy.md says how a line is written")

    @cache
    def policy_of(rules: str, lists: Lists, protection: Protection) -> Policy:
        added = (RuleSource("rules", rules, user=True),) if rules else ()
        return load((*sources, *added), lists=lists, protection=protection)

    def judged(trial: "Trial") -> Judged:
        if trial.call is None:
            return judge_trial(trial, sources)
        lists = Lists(trial.lists.hosts, trial.lists.remotes, trial.lists.push_remotes, trial.lists.teams)
        policy = policy_of(trial.rules, lists, Protection(trial.protected.never, trial.protected.readonly, trial.protected.free))
        judge = Judge(Rules(policy=policy), tools, trial.facts)
        try:
            ruling = judge.call(trial.call.tool, dict(trial.call.arguments))
        except BadCall as bad:
            return Judged(denial(bad.rule, str(bad)))
        labels = labels_of(policy, ruling.subject, trial.facts) if ruling.subject else ()
        return Judged(ruling.verdict, tuple(label for label, _ in labels))

    return run_corpus(trials, judged)


app = typer.Typer()

_OWN_IS_FREE = "workspace-free"
_LISTS = ("allow", "ask", "deny")

WorkspaceOption = Annotated[
    Path | None, typer.Option(metavar="DIR", help="the session's own workspace; left out, the current directory is judged as one")
]
ProjectOption = Annotated[Path | None, typer.Option(metavar="DIR", help="a project that the user named, in place of --workspace")]
PolicyOption = Annotated[list[Path] | None, typer.Option("--policy", help="a rule file to add; may be given more than once")]
ModeOption = Annotated[Mode, typer.Option(parser=parse_mode, metavar="MODE", help="the session's mode")]
LabelsOption = Annotated[str, typer.Option(help="what the session has touched, with commas: sensitive,untrusted-content")]


def _judge(workspace: Path | None, project: Path | None, policy: list[Path] | None, mode: Mode, labels: str) -> tuple[Setup, Judge]:
    if workspace is not None and project is not None:
        raise Misuse("give --workspace or --project, not both")
    setup = load_setup(policy or ())
    for warning in setup.warnings:
        note(f"warning: {warning}")
    try:
        target, remark = workspace_for(setup, workspace, project)
    except CommandRefused as refusal:
        raise Misuse(str(refusal)) from None
    require_directory(workspace, "--workspace")
    require_directory(project, "--project")
    if remark:
        note(f"note: {remark}")
    return setup, judge_for(setup, target, mode, frozenset(label.strip() for label in labels.split(",") if label.strip()))


@app.command()
def check(
    workspace: WorkspaceOption = None,
    project: ProjectOption = None,
    policy: PolicyOption = None,
    mode: ModeOption = Mode.DEFAULT,
    labels: LabelsOption = "",
) -> None:
    """Read calls from stdin, one JSON object per line, and print one verdict per line.

    A call is {"tool": "filesystem.read_file", "arguments": {"path": "a"}}; a line that is no call is denied, and so is every line where
    rules or configuration do not load.
    """
    fault = ""
    try:
        judged = _judge(workspace, project, policy, mode, labels)[1].line
    except Misuse:
        raise
    except (CurtainwallError, OSError) as error:
        fault = str(error)
        note(f"curtainwall: {inert(fault)}; until this is repaired every call is denied")
        judged = refuse_all(fault)
    for line in _calls("calls, one JSON object per line, are"):
        print(json.dumps(judged(line).document()), flush=True)
    if fault:
        raise typer.Exit(1)


def _calls(what: str) -> Iterator[bytes]:
    if sys.stdin.isatty():
        hint(f"{what} read from the terminal; Ctrl-D ends")
    return read_lines(sys.stdin.buffer)


@app.command("explain")
def explain_call(
    tool: Annotated[str | None, typer.Argument(metavar="[TOOL]", help="server.tool; left out, one call is read from stdin")] = None,
    arguments: Annotated[str, typer.Argument(metavar="[JSON]", help="its arguments as JSON")] = "{}",
    workspace: WorkspaceOption = None,
    project: ProjectOption = None,
    policy: PolicyOption = None,
    mode: ModeOption = Mode.DEFAULT,
    labels: LabelsOption = "",
    output: OutputOption = Output.TEXT,
) -> None:
    """Say why a call is allowed, asked for or denied, and what would change that."""
    setup, judge = _judge(workspace, project, policy, mode, labels)
    name = tool or "TOOL"
    try:
        name, call_arguments = (
            read_call(next(_calls("one call, a JSON object on a line, is"), b"")) if tool is None else (tool, read_json(arguments))
        )
        ruling = judge.call(name, call_arguments)
    except BadCall as bad:
        ruling = TrialResult(denial(bad.rule, str(bad)))
    except (ValueError, RecursionError) as fault:
        ruling = TrialResult(denial(INVALID, f"the arguments are no JSON: {fault}"))
    if project is None and _OWN_IS_FREE in ruling.verdict.because:
        note(
            "note: judged as a workspace of the session's own; a project, as `start --workspace DIR` has it, is judged with `--project DIR`"
        )
    explanation = explain_trial(setup, judge, ruling, name)
    hooks = hooks_for_call(setup, judge.facts.workspace.path, name) if ruling.subject else ()
    if output is Output.JSON:
        rules = [
            {"id": card.id, "kind": card.kind, "title": card.title, "reason": card.reason, "source": card.source}
            for card in explanation.rules
        ]
        more = {
            "facts": list(explanation.facts),
            "labels": list(explanation.labels),
            "hooks": list(hooks),
            "changes": list(explanation.changes),
        }
        show_json({**ruling.document(), "rules": rules, **more})
        return
    show(f"{verdict_word(ruling.verdict.effect)}: {inert(ruling.verdict.reason)}")
    if ruling.subject:
        _paragraph("it wants", [f"{it.role} {in_order(it.value)}" for it in ruling.subject.resources])
    _paragraph("because of", [f"{card.id} ({card.kind}, {card.source}): {card.title}" for card in explanation.rules])
    _paragraph("facts", explanation.facts)
    _paragraph("labels", explanation.labels)
    _paragraph("hooks that hear of it (none was run)", hooks)
    _paragraph("what would change it", explanation.changes)


def _paragraph(title: str, lines: tuple[str, ...] | list[str]) -> None:
    if lines:
        show("\n".join([paint(f"{title}:", "bold"), *(f"  {inert(line)}" for line in lines)]))


@app.command()
def rules(
    rule: Annotated[str | None, typer.Argument(metavar="[RULE]", help="show this one whole")] = None,
    policy: PolicyOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """List the rules in force, structural ones first, and those of one team, job or webhook last."""
    setup = load_setup(policy or ())
    for warning in setup.warnings:
        note(f"warning: {warning}")
    owners = {**dict.fromkeys(setup.policy.rules, ""), **setup.own_cards}
    if rule is not None:
        card = next((card for card in owners if card.id == rule), None)
        if card is None:
            raise CommandRefused(f"there is no rule `{rule}`; `curtainwall policy rules` lists them")
        if output is Output.JSON:
            show_json(_as_json(card))
        else:
            show(f"{card.id} ({card.kind}, {card.source})\n{card.title}\n{card.reason}\n\n{card.text}".rstrip())
    elif output is Output.JSON:
        show_json({"version": setup.policy.version, "rules": [{**_as_json(card), "for": whose} for card, whose in owners.items()]})
    else:
        lines = [
            (card.id, card.kind, f"{card.source}, for {whose}" if whose else card.source, card.title) for card, whose in owners.items()
        ]
        show(columns(("rule", "kind", "from", "says"), lines))


def _as_json(card: RuleCard) -> dict[str, str]:
    return {"id": card.id, "kind": card.kind, "title": card.title, "reason": card.reason, "source": card.source, "text": card.text}


@app.command("test")
def run_corpus_file(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JSON lines: rules, session, call or resources, expected verdict")],
    policy: PolicyOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Run a corpus of expected verdicts under the rules in force; lists and protected paths are those that each line gives."""
    results = run_trials(find_home(), file, policy or [])
    failed = [result for result in results if result.faults]
    if output is Output.JSON:
        faults = [{"name": result.trial.name, "faults": list(result.faults)} for result in failed]
        show_json({"passed": len(results) - len(failed), "failed": len(failed), "faults": faults})
    else:
        for result in failed:
            show("\n".join([f"{paint('failed', 'deny')} {inert(result.trial.name)}", *(f"  {inert(fault)}" for fault in result.faults)]))
        show(f"{len(results) - len(failed)} passed, {len(failed)} failed")
    if failed:
        raise typer.Exit(1)


@app.command("import")
def import_rules(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Claude Code's settings.json, or its `permissions` alone")],
    workspace: Annotated[
        Path | None, typer.Option(metavar="DIR", help="where its relative patterns start; left out, the current directory")
    ] = None,
    name: Annotated[str, typer.Option(help="what file and ids of the rules begin with; a second import needs another")] = "claude",
    write: Annotated[bool, typer.Option("--write", help="put the rules into policy/ in place of printing them")] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Turn Claude Code's permission lists into rules, never looser than they were."""
    # Start-up time: as above.
    from curtainwall.policy import import_permissions

    require_directory(workspace, "--workspace")
    try:
        settings = read_json(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise Broken(f"`{file}` is no JSON: {error}") from None
    lists = settings.get("permissions", settings) if isinstance(settings, dict) else None
    if isinstance(lists, dict) and not any(key in lists for key in _LISTS):
        raise Broken(f"`{file}` has no permission list (`allow`, `ask` or `deny`), so there is nothing to import")
    base = os.path.realpath(workspace or Path.cwd())
    imported = import_permissions(settings, workspace=base, home=user_homes()[0], name=name)
    for remark in imported.notes:
        note(f"note: {inert(remark)}")
    if not write:
        show_json({"cedar": imported.cedar_text, "notes": list(imported.notes)}) if output is Output.JSON else show(imported.cedar_text)
        return
    written = _put(imported.cedar_text, name)
    show_json({"path": str(written), "notes": list(imported.notes)}) if output is Output.JSON else show(str(written))


def _put(text: str, name: str) -> Path:
    """Write rules into the user's directory; remove them if the rules then fail to load."""
    home = find_home()
    home.prepare()
    private_directory(home.policy)
    path = home.policy / f"{name}.cedar"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise CommandRefused(
            f"`{path}` is there from an earlier import; take it away to import anew, or keep both with `--name {name}-2` "
            "(then what either of them does not allow asks)"
        ) from None
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text + "\n")
    try:
        load_setup()
    except BaseException:
        path.unlink()
        raise
    return path
