"""Talk between teams, decided: cycles end, labels and cost travel, each message gets one answer, and a sensitive one waits for a yes."""

import pytest

from curtainwall.model import (
    SYSTEM,
    AgentSpoke,
    AnyCommand,
    AnyEvent,
    Basis,
    BudgetKind,
    CallId,
    CloseSession,
    CommandRefused,
    CompactionAsked,
    DeliverMessage,
    Digest,
    EndTurn,
    ExpireMessages,
    InterruptTurn,
    Label,
    LabelsAdded,
    LabelSource,
    MessageAccepted,
    MessageId,
    MessagePeer,
    ModelRequested,
    ModelResponded,
    NotFound,
    OverBudget,
    Payload,
    Peer,
    PeerAnswer,
    PeerAnswered,
    PeerAnswerHeld,
    PeerAnswerTaken,
    PeerMessageSent,
    PeerStatus,
    RecordProgress,
    RequestCall,
    Resource,
    Role,
    SendHeldAnswer,
    SendMessage,
    SessionId,
    SessionOpened,
    SessionReady,
    StartTurn,
    Subject,
    SubjectKind,
    TakePeerAnswer,
    TextStreamed,
    ToolEffect,
    TurnId,
    TurnStarted,
    TurnStatus,
    Usage,
    Who,
    WithdrawMessage,
    WithholdAnswer,
    session_stream,
)
from curtainwall.policy import Lists, Protection, RuleSource, load, shipped
from curtainwall.session import Rules, SessionState, decide, fold, label_words, posts_of
from tests.support.covers import covers
from tests.support.given import ANN, NOW, PROJECT, RULES, moment

HERE, THERE = SessionId("here"), SessionId("there")
FRONTEND = Peer(session=THERE, team="frontend", path=("frontend",))
USAGE = Usage(input_tokens=900, output_tokens=100, dollars=0.25, tokens_basis=Basis.MEASURED, dollars_basis=Basis.ESTIMATED)


class Session:
    """One session that decides commands and keeps its log."""

    def __init__(self, team: str = "backend", rules: Rules = RULES, channel: str = "teams") -> None:
        opened = SessionOpened(
            at=NOW, session=HERE, name="pair", agent="builtin", model="demo", channel=channel, workspace=PROJECT, mode="default",
            limits={}, policy="p", by=SYSTEM, team=team,
        )  # fmt: skip
        self.log: list[AnyEvent] = [opened, SessionReady(at=NOW)]
        self.rules = rules

    @property
    def state(self) -> SessionState:
        return fold(self.log)

    def does(self, *commands: AnyCommand, later: int = 0) -> tuple[AnyEvent, ...]:
        events: tuple[AnyEvent, ...] = ()
        for command in commands:
            events = decide(self.state, command, self.rules, moment(NOW + later))
            self.log += events
        return events

    def is_asked(self, name: str = "q1", peer: Peer = FRONTEND, **more: object) -> tuple[AnyEvent, ...]:
        by = Who(name=peer.team, channel="teams")
        return self.does(DeliverMessage(by=by, message=MessageId(name), text=f"{name}?", peer=peer, **more))

    def works(self, text: str = "so it is", *, status: TurnStatus = TurnStatus.DONE, turn: str = "t1") -> tuple[AnyEvent, ...]:
        one = TurnId(turn)
        asked = ModelRequested(at=NOW, turn=one, request=turn, base=None, added=Payload(), model="demo")
        said = ModelResponded(at=NOW, turn=one, request=turn, raw=Payload(), normalised=Payload(), usage=USAGE)
        spoke = AgentSpoke(at=NOW, turn=one, text=text)
        self.does(StartTurn(by=SYSTEM, turn=one), RecordProgress(by=SYSTEM, events=(asked, said, spoke)))
        return self.does(EndTurn(by=SYSTEM, turn=one, status=status, failure="" if status is TurnStatus.DONE else "it broke"))


def sends(team: str = "data", name: str = "m1") -> MessagePeer:
    return MessagePeer(by=SYSTEM, message=MessageId(name), to=THERE, team=team, text="how many?")


def answer(name: str = "m1", *, status: PeerStatus = PeerStatus.DONE, labels: tuple[str, ...] = ()) -> TakePeerAnswer:
    sources = tuple(LabelSource(label=Label(label), origin="/srv/secret") for label in labels)
    return TakePeerAnswer(by=SYSTEM, answer=PeerAnswer(message=MessageId(name), status=status, text="42", labels=sources, usage=USAGE))


@covers("teams.one-transaction")
def test_a_message_is_an_event_here_and_a_row_in_the_others_inbox() -> None:
    here = Session("frontend")
    (sent,) = here.does(sends())
    assert isinstance(sent, PeerMessageSent)
    (post,) = posts_of((sent,))
    assert (post.stream, post.key) == (session_stream(THERE), "message:m1")
    assert isinstance(post.command, DeliverMessage)
    assert post.command.peer == Peer(session=HERE, team="frontend", path=("frontend",))


@covers("teams.one-answer-for-each-message")
def test_each_message_is_worked_on_alone_and_gets_its_own_answer() -> None:
    here = Session()
    here.is_asked("q1")
    here.is_asked("q2")
    first = here.works("one", turn="t1")
    second = here.works("two", turn="t2")
    told = [event for event in (*first, *second) if isinstance(event, PeerAnswered)]
    assert [(it.answer.message, it.answer.text) for it in told] == [("q1", "one"), ("q2", "two")]
    assert [post.stream for post in posts_of(told)] == [session_stream(THERE)] * 2
    assert not here.state.peers


@covers("teams.one-answer-for-each-message")
def test_late_words_of_a_turn_that_was_cancelled_are_not_the_answer_to_the_next_message() -> None:
    here = Session()
    here.is_asked("q1")
    here.is_asked("q2")
    one, two = TurnId("t1"), TurnId("t2")
    here.does(StartTurn(by=SYSTEM, turn=one), InterruptTurn(by=ANN))
    here.does(EndTurn(by=SYSTEM, turn=one, status=TurnStatus.INTERRUPTED, failure="interrupted"), StartTurn(by=SYSTEM, turn=two))
    words = AgentSpoke(at=NOW, turn=two, text="two"), AgentSpoke(at=NOW, turn=one, text="one, late")
    note = AgentSpoke(at=NOW, turn=one, text="[a late note]", ours=True)
    here.does(RecordProgress(by=SYSTEM, events=(*words, note)))
    ended = here.does(EndTurn(by=SYSTEM, turn=two, status=TurnStatus.DONE))
    told = next(event for event in ended if isinstance(event, PeerAnswered))
    assert (told.answer.message, told.answer.text) == ("q2", "two")


@covers("teams.notes-go-out")
def test_what_we_have_to_say_about_the_agent_goes_out_with_its_answer_and_never_in_its_place() -> None:
    here = Session()
    for turn, status, text in (("t1", TurnStatus.DONE, "[n]\n\n[n]\n\nso"), ("t2", TurnStatus.FAILED, "[n]\n\n[n]\n\nit broke")):
        here.is_asked(turn)
        one = TurnId(turn)
        note = AgentSpoke(at=NOW, turn=one, text="[n]", ours=True)
        spoke = AgentSpoke(at=NOW, turn=one, text="so")
        here.does(StartTurn(by=SYSTEM, turn=one), RecordProgress(by=SYSTEM, events=(note, spoke, note)))
        ended = EndTurn(by=SYSTEM, turn=one, status=status, failure="it broke", fault="" if status is TurnStatus.DONE else "AgentCrashed")
        told = here.does(ended)[0]
        assert isinstance(told, PeerAnswered)
        assert (told.answer.text, told.answer.fault) == (text, ended.fault)


def test_what_people_said_before_a_message_of_a_team_is_a_turn_of_its_own() -> None:
    here = Session()
    here.does(SendMessage(by=ANN, message=MessageId("h1"), text="hello"), SendMessage(by=ANN, message=MessageId("h2"), text="there"))
    here.is_asked("q1")
    (started,) = here.does(StartTurn(by=SYSTEM, turn=TurnId("t1")))
    assert isinstance(started, TurnStarted)
    assert started.messages == ("h1", "h2")


@covers("teams.cost-is-the-askers")
def test_the_answer_tells_what_it_cost_and_the_asker_pays() -> None:
    here = Session()
    here.is_asked()
    told = next(event for event in here.works() if isinstance(event, PeerAnswered))
    assert (told.answer.usage.input_tokens, told.answer.usage.dollars) == (1000, 0.25)
    asker = Session("frontend")
    asker.does(sends(), answer())
    assert (asker.state.spent.tokens, asker.state.spent.dollars) == (1000, 0.25)


@covers("teams.cost-is-the-askers")
def test_who_has_used_up_a_budget_asks_no_more() -> None:
    asker = Session("frontend")
    asker.does(sends())
    big = answer().answer.model_copy(update={"usage": USAGE.model_copy(update={"input_tokens": 2_000_000})})
    asker.does(TakePeerAnswer(by=SYSTEM, answer=big))
    assert BudgetKind.TOKENS in asker.state.exhausted
    with pytest.raises(OverBudget, match="budget of tokens is used up"):
        asker.does(sends(name="m2"))


@covers("teams.labels-travel")
def test_labels_go_along_with_the_message_and_come_back_with_the_answer() -> None:
    labels = (LabelSource(label=Label("untrusted-content"), origin="evil.com"),)
    here = Session()
    added = here.is_asked(labels=labels)[0]
    assert isinstance(added, LabelsAdded)
    assert added.labels[0].origin == "evil.com from team frontend"
    unknown = Session().is_asked(labels=(LabelSource(label=Label("untrusted-content")),))[0]
    assert isinstance(unknown, LabelsAdded)
    assert label_words(unknown.labels[0]) == "untrusted-content was set by team frontend"
    far = Session().is_asked(labels=(LabelSource(label=Label("untrusted-content"), origin="evil.com from team data"),))[0]
    assert isinstance(far, LabelsAdded)
    assert far.labels[0].origin == "evil.com from team frontend", "one hop is told, however many there were"
    told = next(event for event in here.works() if isinstance(event, PeerAnswered))
    assert [it.label for it in told.answer.labels] == ["untrusted-content"]
    asker = Session("frontend")
    asker.does(sends())
    (taken,) = asker.does(answer(labels=("sensitive",)))
    assert isinstance(taken, PeerAnswerTaken)
    assert asker.state.labels[Label("sensitive")].origin == "/srv/secret from team data"


@covers("teams.a-sensitive-answer-asks")
def test_an_answer_from_sensitive_material_waits_for_a_yes() -> None:
    here = Session()
    here.is_asked(labels=(LabelSource(label=Label("sensitive"), origin="/srv/.env"),))
    assert any(isinstance(event, PeerAnswerHeld) for event in here.works("the secret"))
    (told,) = here.does(SendHeldAnswer(by=SYSTEM, message=MessageId("q1")))
    assert isinstance(told, PeerAnswered)
    assert told.answer.text == "the secret"
    with pytest.raises(NotFound):
        here.does(SendHeldAnswer(by=SYSTEM, message=MessageId("q1")))


@covers("teams.a-sensitive-answer-asks")
@pytest.mark.parametrize("status", [TurnStatus.FAILED, TurnStatus.INTERRUPTED])
def test_an_agent_that_fails_chooses_no_words_for_others_after_sensitive_material(status: TurnStatus) -> None:
    here = Session()
    here.is_asked(labels=(LabelSource(label=Label("sensitive"), origin="/srv/.env"),))
    told = next(event for event in here.works(status=status) if isinstance(event, PeerAnswered))
    assert told.answer.status.value == status.value
    assert "it broke" not in told.answer.text
    assert "its own people" in told.answer.text
    assert not told.answer.partial, "what it had said is its words as well"
    assert told.answer.usage.input_tokens == 1000


def test_what_we_say_of_a_turn_without_judging_it_names_nothing_that_its_agent_named() -> None:
    here = Session()
    here.is_asked()
    one = TurnId("t1")
    note = AgentSpoke(at=NOW, turn=one, text="[`/p/.git/hooks/what-was-read` was renamed]", ours=True)
    here.does(
        StartTurn(by=SYSTEM, turn=one), RecordProgress(by=SYSTEM, events=(note,)), EndTurn(by=SYSTEM, turn=one, status=TurnStatus.WAITING)
    )
    told = next(event for event in here.does(InterruptTurn(by=ANN)) if isinstance(event, PeerAnswered))
    assert told.answer.text == f"interrupted by {ANN}"
    assert not told.answer.partial


@covers("teams.all-of-a-reply")
def test_an_answer_is_everything_that_the_agent_said_in_its_turn() -> None:
    here = Session()
    here.is_asked("q1")
    here.is_asked("q2")
    one = TurnId("t1")
    words = [
        AgentSpoke(at=NOW, turn=one, text="I look it up"),
        TextStreamed(at=NOW, turn=one, text="it is"),
        AgentSpoke(at=NOW, turn=one, text="it is 8080"),
    ]
    here.does(StartTurn(by=SYSTEM, turn=one), RecordProgress(by=SYSTEM, events=tuple(words)))
    told = here.does(EndTurn(by=SYSTEM, turn=one, status=TurnStatus.DONE))[0]
    assert isinstance(told, PeerAnswered)
    assert (told.answer.text, told.answer.partial) == ("I look it up\n\nit is 8080", "")
    second = next(event for event in here.works("two", turn="t2") if isinstance(event, PeerAnswered))
    assert second.answer.text == "two", "nothing of an earlier turn"


@covers("teams.all-of-a-reply")
@pytest.mark.parametrize("status", [TurnStatus.FAILED, TurnStatus.INTERRUPTED])
def test_what_was_said_before_a_turn_broke_off_reaches_the_asker(status: TurnStatus) -> None:
    here = Session()
    here.is_asked()
    one = TurnId("t1")
    words = AgentSpoke(at=NOW, turn=one, text="I look it up"), TextStreamed(at=NOW, turn=one, text="it is 80")
    here.does(StartTurn(by=SYSTEM, turn=one), RecordProgress(by=SYSTEM, events=words))
    told = here.does(EndTurn(by=SYSTEM, turn=one, status=status, failure="it broke"))[0]
    assert isinstance(told, PeerAnswered)
    assert (told.answer.text, told.answer.partial) == ("it broke", "I look it up\n\nit is 80")


def test_a_withheld_answer_says_why_and_nothing_of_the_answer() -> None:
    here = Session()
    here.is_asked(labels=(LabelSource(label=Label("sensitive"), origin="/srv/.env"),))
    here.works("the secret")
    (told,) = here.does(WithholdAnswer(by=SYSTEM, message=MessageId("q1"), why="refused by `denied-by-human`"))
    assert isinstance(told, PeerAnswered)
    assert (told.answer.status, told.answer.text, told.answer.labels) == (PeerStatus.WITHHELD, "refused by `denied-by-human`", ())
    assert told.answer.usage.input_tokens == 1000


@covers("teams.cycles-end")
def test_a_question_that_would_come_back_names_its_path() -> None:
    here = Session("backend")
    here.is_asked(peer=Peer(session=THERE, team="frontend", path=("frontend",)))
    here.does(StartTurn(by=SYSTEM, turn=TurnId("t1")))
    with pytest.raises(CommandRefused, match="`frontend` → `backend` → `frontend`"):
        here.does(sends("frontend"))
    with pytest.raises(CommandRefused, match="`frontend` → `backend` → `backend`"):
        here.does(sends("backend"))
    (sent,) = here.does(sends("data"))
    assert isinstance(sent, PeerMessageSent)
    assert sent.peer.path == ("frontend", "backend")


@covers("teams.cycles-end")
def test_a_path_that_is_too_long_is_refused_with_the_path() -> None:
    here = Session("e")
    here.is_asked(peer=Peer(session=THERE, team="d", path=("a", "b", "c", "d")))
    here.does(StartTurn(by=SYSTEM, turn=TurnId("t1")))
    with pytest.raises(CommandRefused, match="went through 5 teams, and 4 are the most: `a` → `b` → `c` → `d` → `e` → `f`"):
        here.does(sends("f"))


@covers("teams.who-may-ask")
def test_who_may_not_ask_gets_the_rule_as_the_answer() -> None:
    rules = Rules(policy=RULES.policy, askers={"backend": frozenset({"mobile"})})
    here = Session(rules=rules)
    (told,) = here.is_asked()
    assert isinstance(told, PeerAnswered)
    assert told.answer.status is PeerStatus.REFUSED
    assert "`team-askers`" in told.answer.text
    assert "`mobile`" in told.answer.text
    assert not here.state.queue


@covers("teams.who-may-ask")
def test_a_rule_of_the_team_can_forbid_an_asker() -> None:
    text = '@id("not-them") forbid (principal in Team::"frontend", action == Action::"message-team", resource == Team::"backend");'
    own = load((*shipped(), RuleSource("own.cedar", text, user=True)), lists=Lists(), protection=Protection())
    here = Session(rules=Rules(policy=RULES.policy, own_policies={("team", "backend"): own}).of(team="backend"))
    (told,) = here.is_asked()
    assert isinstance(told, PeerAnswered)
    assert "refused by `not-them`" in told.answer.text
    assert isinstance(here.is_asked("q2", Peer(session=THERE, team="nobody", path=("nobody",)))[-1], MessageAccepted)


@covers("teams.who-may-ask")
def test_a_team_that_is_gone_takes_no_message_whatever_askers_it_had() -> None:
    rules = Rules(policy=RULES.policy, known=frozenset({("team", "others"), ("job", "backend")}))
    (told,) = Session(rules=rules.of(team="backend")).is_asked()
    assert isinstance(told, PeerAnswered)
    assert "refused by `team-gone`: team `backend` is not in the configuration any more" in told.answer.text
    assert rules.of(team="others") is rules.of(job="backend") is rules.of() is rules


@covers("teams.a-notice-ends")
def test_a_message_whose_time_is_over_is_not_delivered() -> None:
    here = Session()
    here.is_asked(expires=NOW + 1_000)
    assert here.does(ExpireMessages(by=SYSTEM), later=999) == ()
    (told,) = here.does(ExpireMessages(by=SYSTEM), later=1_000)
    assert isinstance(told, PeerAnswered)
    assert told.answer.status is PeerStatus.EXPIRED
    assert not here.state.queue
    (late,) = here.is_asked("q2", expires=NOW)
    assert isinstance(late, PeerAnswered)
    assert late.answer.status is PeerStatus.EXPIRED


@covers("teams.one-answer-for-each-message")
def test_whatever_ends_a_message_is_told_to_its_sender() -> None:
    here = Session()
    here.is_asked("q1")
    failed = next(event for event in here.works(status=TurnStatus.FAILED) if isinstance(event, PeerAnswered))
    assert (failed.answer.status, failed.answer.text) == (PeerStatus.FAILED, "it broke")
    here.is_asked("q2")
    withdrawn = here.does(WithdrawMessage(by=SYSTEM, message=MessageId("q2")))[-1]
    assert isinstance(withdrawn, PeerAnswered)
    assert withdrawn.answer.status is PeerStatus.WITHDRAWN
    here.is_asked("q3")
    closed = next(event for event in here.does(CloseSession(by=SYSTEM, reason="enough")) if isinstance(event, PeerAnswered))
    assert closed.answer.message == "q3"
    (refused,) = here.is_asked("q4")
    assert isinstance(refused, PeerAnswered)
    assert "closed: enough" in refused.answer.text


def test_an_answer_is_taken_once_and_also_after_the_end() -> None:
    asker = Session("frontend")
    asker.does(sends(), CloseSession(by=SYSTEM, reason="gone"))
    assert isinstance(asker.does(answer())[0], PeerAnswerTaken)
    with pytest.raises(NotFound):
        asker.does(answer())


def test_last_words_leave_with_the_end_of_the_turn() -> None:
    here = Session()
    here.is_asked()
    here.does(StartTurn(by=SYSTEM, turn=TurnId("t1")))
    spoke = AgentSpoke(at=NOW, turn=TurnId("t1"), text="so it is")
    first, answered, *_ = here.does(EndTurn(by=SYSTEM, turn=TurnId("t1"), status=TurnStatus.DONE, last=(spoke,)))
    assert first == spoke
    assert isinstance(answered, PeerAnswered)
    assert answered.answer.text == "so it is"


def test_a_message_leaves_with_its_permit_and_stays_where_it_may_not_leave() -> None:
    def permitted(team: str) -> list[str]:
        raw = {"team": team, "question": "how many?"}
        resource = Resource(role=Role.MESSAGE_TEAM, value=team)
        subject = Subject(
            kind=SubjectKind.PEER_MESSAGE,
            tool="teams.ask",
            effect=ToolEffect.SEND,
            raw=raw,
            canonical=raw,
            resources=(resource,),
            digest=Digest("d"),
        )
        asker = Session("frontend", Rules(policy=load(shipped(), lists=Lists(teams=("data", "frontend")), protection=Protection())))
        events = asker.does(RequestCall(by=SYSTEM, call=CallId("c1"), subject=subject, along=sends(team)))
        return [type(event).__name__ for event in events]

    assert permitted("data") == ["CallRequested", "CallPermitted", "PeerMessageSent"]
    assert permitted("frontend") == ["CallRequested", "CallPermitted"], "a circle: whoever runs the call is told why"
    assert "PeerMessageSent" not in permitted("unlisted"), "somebody is asked first"


@covers("teams.long-talk-becomes-a-summary")
def test_after_so_many_messages_a_summary_is_asked_for_once() -> None:
    here = Session(rules=Rules(policy=RULES.policy, compact_after=2))
    here.is_asked("q1")
    assert not any(isinstance(event, CompactionAsked) for event in here.works(turn="t1"))
    here.is_asked("q2")
    assert any(isinstance(event, CompactionAsked) for event in here.works(turn="t2"))
    here.is_asked("q3")
    assert not any(isinstance(event, CompactionAsked) for event in here.works(turn="t3"))
