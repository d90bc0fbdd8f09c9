"""The pure half of team conversations: which messages may be sent and accepted, which answers go back, and what is sent with them."""

from collections.abc import Iterable
from functools import lru_cache
from typing import assert_never

from pydantic import JsonValue

from curtainwall import policy
from curtainwall.model import (
    ANSWER,
    NOBODY,
    RECEIVE,
    SYSTEM,
    TEAMS,
    AnyCommand,
    AnyEvent,
    Basis,
    CommandRefused,
    CompactionAsked,
    DeliverMessage,
    Digest,
    Effect,
    LabelsAdded,
    LabelSource,
    MessageAccepted,
    MessageId,
    MessagePeer,
    Millis,
    Mode,
    Moment,
    NotFound,
    OverBudget,
    Peer,
    PeerAnswer,
    PeerAnswered,
    PeerAnswerHeld,
    PeerAnswerTaken,
    PeerEvent,
    PeerMessageSent,
    PeerStatus,
    Post,
    Resource,
    Role,
    SendHeldAnswer,
    Subject,
    SubjectKind,
    TakePeerAnswer,
    ToolEffect,
    TurnStatus,
    Usage,
    Verdict,
    Who,
    WithholdAnswer,
    Workspace,
    denial,
    session_stream,
)
from curtainwall.session.limits import figures
from curtainwall.session.rules import Rules
from curtainwall.session.state import SessionState, Spent

TEAM_ASKERS = "team-askers"
_ENDS = {
    TurnStatus.DONE: PeerStatus.DONE,
    TurnStatus.FAILED: PeerStatus.FAILED,
    TurnStatus.INTERRUPTED: PeerStatus.INTERRUPTED,
}

_UNTOLD = {
    PeerStatus.FAILED: "the team's agent failed; in which words is for its own people alone",
    PeerStatus.INTERRUPTED: "the team's turn was interrupted; in which words is for its own people alone",
}


def team_of(state: SessionState) -> str:
    """Return the team that a session speaks for, or `NOBODY`."""
    return (state.opened.team if state.opened is not None else "") or NOBODY


def path_of(state: SessionState) -> tuple[str, ...]:
    """Return the teams that passed on the current question, ending with the session's own."""
    came = next((state.peers[message].path for message in state.turn_messages if message in state.peers), ())
    return (*came, team_of(state))


def require_no_cycle(state: SessionState, team: str, rules: Rules) -> None:
    """Refuse a question that would return to a team on its path, or whose path is too long; the refusal shows the path."""
    path = path_of(state)
    route = " → ".join(f"`{each}`" for each in (*path, team))
    if team in path:
        raise CommandRefused(f"the question would come back to a team that already waits for it: {route}; answer with what is known")
    if len(path) > rules.depth:
        raise CommandRefused(f"the question went through {len(path)} teams, and {rules.depth} are the most: {route}")


def send(state: SessionState, command: MessagePeer, rules: Rules, moment: Moment) -> tuple[AnyEvent, ...]:
    """Return the message to send; refuse a cycle, a path that is too long, and a used-up budget."""
    assert state.opened is not None
    path = path_of(state)
    require_no_cycle(state, command.team, rules)
    if state.exhausted:
        kinds = sorted(state.exhausted)
        how = " and ".join(f"`curtainwall sessions budget {state.opened.session} {kind} AMOUNT`" for kind in kinds)
        used = ", ".join(f"{it.used:,.10g} of {it.limit:,.10g} {it.kind}" for it in figures(state) if it.kind in state.exhausted)
        shared = ", all its connections and threads taken together" if state.elsewhere != Spent() else ""
        raise OverBudget(
            f"the budget of {' and '.join(kinds)} is used up ({used}{shared}), and whoever asks pays for the answer; "
            f"a human can allow more: {how}"
        )
    return (
        PeerMessageSent(
            at=moment.at,
            message=command.message,
            to=command.to,
            team=command.team,
            text=command.text,
            peer=Peer(session=state.opened.session, team=team_of(state), path=path),
            labels=tuple(state.labels.values()),
            expires=command.expires,
        ),
    )


def receive(state: SessionState, command: DeliverMessage, rules: Rules, moment: Moment) -> tuple[AnyEvent, ...]:
    """Return the queued message with the labels that it brings, or an answer that explains why it is not accepted."""
    at, peer, message = moment.at, command.peer, command.message
    if state.closed is not None:
        return (_closing_answer(at, peer, message, PeerStatus.REFUSED, f"this session is closed: {state.closed}"),)
    if message in state.peers:
        return ()
    if command.expires is not None and command.expires <= at:
        return (_closing_answer(at, peer, message, PeerStatus.EXPIRED, "its time was over before it could be delivered"),)
    assert state.opened is not None
    verdict = may_receive(rules, state.opened.team, peer.team, command.labels, state.workspace)
    if verdict.effect is Effect.DENY:
        return (_closing_answer(at, peer, message, PeerStatus.REFUSED, refusal_text(verdict)),)
    came = tuple(_from(peer.team, source) for source in command.labels if source.label not in state.labels)
    accepted = MessageAccepted(at=at, message=message, text=command.text, by=_speaker(peer.team), peer=peer, expires=command.expires)
    return (*((LabelsAdded(at=at, labels=came),) if came else ()), accepted)


def may_receive(rules: Rules, team: str, asker: str, labels: Iterable[LabelSource], workspace: Workspace) -> Verdict:
    """Judge by the receiving team's own rules whether the asker may ask it; the sender's rules were applied before."""
    allowed = rules.askers.get(team)
    if allowed is not None and asker not in allowed:
        who = ", ".join(f"`{name}`" for name in sorted(allowed)) or "no team"
        return denial(TEAM_ASKERS, f"team `{team}` takes no messages from `{asker}`; it takes those of {who}")
    facts = policy.SessionFacts(
        session=asker,
        agent="",
        workspace=workspace,
        mode=Mode.DEFAULT,
        channel=TEAMS,
        labels=frozenset(source.label for source in labels),
        team=asker,
    )
    return policy.judge(rules.policy, _subject(RECEIVE, team), facts)


def answers(
    state: SessionState, status: TurnStatus, words: str, rules: Rules | None, moment: Moment, *, fault: str = ""
) -> tuple[AnyEvent, ...]:
    """Return the answers to the teams whose messages the turn was about; hold back one that needs approval first.

    Without rules none of the agent's text goes out, only our own notices.
    """
    events: list[AnyEvent] = []
    # Our notes may contain names chosen by an agent, such as files that it left behind, or its text when it failed.
    notes = () if rules is None else state.notes
    is_done = status is TurnStatus.DONE
    partial = "" if rules is None or is_done else "\n\n".join(filter(None, (state.spoken, state.partial)))
    for message in state.turn_messages:
        peer = state.peers.get(message)
        if peer is not None and message not in state.owed:
            answer = PeerAnswer(
                message=message,
                status=_ENDS[status],
                text="\n\n".join(filter(None, (*notes, state.spoken if is_done else words))),
                fault=fault,
                partial=partial,
                labels=tuple(state.labels.values()),
                usage=_used(state),
            )
            events.append(_leaving(state, peer, answer, rules, moment))
    return tuple(events)


def unanswerable(state: SessionState, messages: Iterable[MessageId], status: PeerStatus, why: str, at: Millis) -> tuple[AnyEvent, ...]:
    """Return the answers to messages that will no longer be worked on."""
    return tuple(_closing_answer(at, state.peers[message], message, status, why) for message in messages if message in state.peers)


def expire(state: SessionState, moment: Moment) -> tuple[AnyEvent, ...]:
    """Return the answers to messages that have waited too long."""
    over = [message for message in state.queue if (until := state.expiries.get(message)) is not None and until <= moment.at]
    return unanswerable(state, over, PeerStatus.EXPIRED, "its time was over before the team came to it", moment.at)


def send_held(state: SessionState, command: SendHeldAnswer, moment: Moment) -> tuple[AnyEvent, ...]:
    """Return an answer that was approved."""
    answer = _held(state, command.message)
    return (PeerAnswered(at=moment.at, peer=state.peers[command.message], answer=answer),)


def withhold(state: SessionState, command: WithholdAnswer, moment: Moment) -> tuple[AnyEvent, ...]:
    """Return our notice instead of an answer; it still reports the cost."""
    answer = _held(state, command.message)
    reply = PeerAnswer(message=answer.message, status=PeerStatus.WITHHELD, text=command.why, usage=answer.usage)
    return (PeerAnswered(at=moment.at, peer=state.peers[command.message], answer=reply),)


def take(state: SessionState, command: TakePeerAnswer, moment: Moment) -> tuple[AnyEvent, ...]:
    """Accept an answer, once; its labels and its cost now belong to this session."""
    team = state.sent.get(command.answer.message)
    if team is None:
        raise NotFound(f"no answer to message `{command.answer.message}` is waited for")
    answer = command.answer
    if answer.labels:
        answer = answer.model_copy(update={"labels": tuple(_from(team, source) for source in answer.labels)})
    return (PeerAnswerTaken(at=moment.at, team=team, answer=answer),)


def compaction(state: SessionState, rules: Rules, at: Millis) -> tuple[AnyEvent, ...]:
    """Return a request for a summary, if the pair has exchanged enough messages since the last one."""
    is_pair = state.opened is not None and state.opened.channel == TEAMS and bool(state.opened.team)
    long = state.totals.messages - state.compacted_at >= rules.compact_after
    return (CompactionAsked(at=at, instructions="", by=SYSTEM),) if is_pair and long and state.compaction_asked is None else ()


def posts_of(events: Iterable[AnyEvent]) -> tuple[Post, ...]:
    """Return the posts to other sessions that belong to events; all are written in one commit."""
    posts: list[Post] = []
    for event in events:
        if not isinstance(event, PeerEvent):
            continue
        match event:
            case PeerMessageSent():
                command = DeliverMessage(
                    by=_speaker(event.peer.team),
                    message=event.message,
                    text=event.text,
                    peer=event.peer,
                    labels=event.labels,
                    expires=event.expires,
                )
                posts.append(Post(session_stream(event.to), f"message:{event.message}", command))
            case PeerAnswered():
                posts.append(_answer_to(event.peer, event.answer))
            case PeerAnswerHeld() | PeerAnswerTaken():
                pass
            case _:
                assert_never(event)
    return tuple(posts)


def rejection_posts(command: AnyCommand, why: str) -> tuple[Post, ...]:
    """Return the answer to a message for which there is no session, or none that could accept it; its sender waits for one."""
    if not isinstance(command, DeliverMessage):
        return ()
    answer = PeerAnswer(message=command.message, status=PeerStatus.REFUSED, text=why)
    return (_answer_to(command.peer, answer),)


def refusal_text(verdict: Verdict) -> str:
    """Return a refusal that names the deciding rules."""
    rules = ", ".join(f"`{rule}`" for rule in verdict.because)
    return f"refused by {rules}: {verdict.reason}" if verdict.reason else f"refused by {rules}"


def answer_arguments(team: str, answer: PeerAnswer) -> dict[str, JsonValue]:
    """Return the arguments of the house's call that decides whether an answer may leave."""
    return {"team": team, "message": answer.message, "answer": answer.text}


def _answer_to(peer: Peer, answer: PeerAnswer) -> Post:
    return Post(session_stream(peer.session), f"answer:{answer.message}", TakePeerAnswer(by=SYSTEM, answer=answer))


def _leaving(state: SessionState, peer: Peer, answer: PeerAnswer, rules: Rules | None, moment: Moment) -> AnyEvent:
    if rules is None:
        return PeerAnswered(at=moment.at, peer=peer, answer=answer)
    verdict = policy.judge(rules.policy, _subject(ANSWER, peer.team), state.facts)
    if answer.status is not PeerStatus.DONE and verdict.effect is not Effect.ALLOW:
        # An agent chooses the text of its failures just as it chooses its answers.
        reply = answer.model_copy(update={"text": f"{_UNTOLD[answer.status]} ({verdict.reason})", "partial": "", "labels": ()})
        return PeerAnswered(at=moment.at, peer=peer, answer=reply)
    match verdict.effect:
        case Effect.ALLOW:
            return PeerAnswered(at=moment.at, peer=peer, answer=answer)
        case Effect.ASK:
            return PeerAnswerHeld(at=moment.at, answer=answer)
        case Effect.DENY:
            reply = PeerAnswer(message=answer.message, status=PeerStatus.WITHHELD, text=refusal_text(verdict), usage=answer.usage)
            return PeerAnswered(at=moment.at, peer=peer, answer=reply)


@lru_cache(maxsize=1024)
def _subject(tool: str, team: str) -> Subject:
    # This is only judged. If a human has to be asked, that goes through the gate, with the answer's text and digest.
    return Subject(
        kind=SubjectKind.PEER_MESSAGE,
        tool=tool,
        effect=ToolEffect.SEND,
        raw={},
        canonical={},
        resources=(Resource(role=Role.MESSAGE_TEAM, value=team),),
        digest=Digest(""),
    )


@lru_cache(maxsize=1024)
def _speaker(team: str) -> Who:
    return Who(name=team, channel=TEAMS)


def _closing_answer(at: Millis, peer: Peer, message: MessageId, status: PeerStatus, why: str) -> PeerAnswered:
    return PeerAnswered(at=at, peer=peer, answer=PeerAnswer(message=message, status=status, text=why))


def _held(state: SessionState, message: MessageId) -> PeerAnswer:
    answer = state.owed.get(message)
    if answer is None or message not in state.peers:
        raise NotFound(f"no answer to message `{message}` is held here")
    return answer


def _from(team: str, source: LabelSource) -> LabelSource:
    where = source.origin or (f"call {source.call}" if source.call else "")
    # Only one hop is named here; the sessions before it name their own.
    first = where.split(" from team ", 1)[0]
    return LabelSource(label=source.label, origin=f"{first} from team {team}" if first else f"team {team}")


def _used(state: SessionState) -> Usage:
    before, now = state.turn_began, state.spent
    if before is None:
        return Usage()
    return Usage(
        input_tokens=max(now.tokens - before.tokens, 0),
        dollars=max(now.dollars - before.dollars, 0.0),
        tokens_basis=Basis(now.tokens_basis),
        dollars_basis=Basis(now.dollars_basis),
    )
