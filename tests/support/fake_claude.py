#!/usr/bin/python3 -I
"""A stand-in for Claude Code, for what the real one cannot be brought to do: it speaks stream-json and misbehaves where it is told to."""

import json
import os
import select
import sys
import time
from pathlib import Path

(
    HANGS,
    GARBAGE,
    LEAVES,
    CRASHES,
    THINKS,
    ERRS,
    LOUDLY,
    ENDLESSLY,
    SLOWLY,
    DEAF,
    WRITES,
    FULL,
    SIGNED_OUT,
    LATE,
    BREAKS,
    RENAMES,
    MOVES,
    FORGETS,
    SPLITS,
) = (
    "please hang",
    "please babble",
    "please leave",
    "please crash",
    "please think",
    "please err",
    "please err loudly",
    "please never stop",
    "please be slow",
    "please be deaf",
    "please write only",
    "please be full",
    "please be signed out",
    "please be late",
    "please break a line",
    "please rename",
    "please move",
    "please forget",
    "please split",
)

OTHER_NAME = "0f0f0f0f-1111-4222-8333-444444444444"
"""What it calls its conversation when it renames it, moves it elsewhere, or forgets it and begins another."""


SUMMARY, HANG_IN_SUMMARY = "This conversation is nearly too long", "hang-in-summary"
"""How it is asked for a summary, and the file in its state that makes it hang there, once."""


def value_of(option: str) -> str:
    return sys.argv[sys.argv.index(option) + 1] if option in sys.argv else ""


CONVERSATION = value_of("--session-id") or value_of("--resume")
STATE = Path(os.environ.get("CLAUDE_CONFIG_DIR", ""))
PLACE = STATE / "projects" / "".join(each if each.isascii() and each.isalnum() else "-" for each in os.getcwd()) / f"{CONVERSATION}.jsonl"


def tell(**event: object) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def keep(**entry: object) -> None:
    with PLACE.open("a") as file:
        file.write(json.dumps(entry, separators=(",", ":")) + "\n")


def remembered() -> int:
    return sum(1 for line in PLACE.read_text().splitlines() if '"type":"user"' in line)


def busy() -> Path:
    """Leave a file for as long as a message is worked on; one that is still there afterwards was left behind by an end in the middle."""
    found = STATE / f"busy-{os.getpid()}-{time.time_ns()}"
    found.touch()
    return found


def is_hung_up() -> bool:
    """Tell whether whoever talks to us has closed the way to do so."""
    ear = select.poll()
    ear.register(0, select.POLLHUP | select.POLLRDHUP)
    return any(events & (select.POLLHUP | select.POLLRDHUP) for _, events in ear.poll(0))


def leave_for(name: str, *, with_past: bool) -> None:
    """Write on in another file, with what was written so far or without it."""
    global CONVERSATION, PLACE
    past = PLACE.read_text() if with_past and PLACE.exists() else ""
    CONVERSATION, PLACE = name, PLACE.with_name(f"{name}.jsonl")
    PLACE.write_text(past)


def answer(text: str, mark: str) -> None:
    is_busy = busy()
    name = OTHER_NAME if RENAMES in text else CONVERSATION
    if MOVES in text or FORGETS in text:
        leave_for(name := OTHER_NAME, with_past=MOVES in text)
    keep(type="user", uuid=mark, message={"role": "user", "content": text})
    tell(type="system", subtype="init", session_id=name, mcp_servers=[{"name": "curtainwall", "status": "connected"}])
    tell(type="user", uuid=mark, isReplay="--replay-user-messages" in sys.argv, message={"role": "user", "content": text})
    if HANGS in text or LATE in text or (text.startswith(SUMMARY) and (STATE / HANG_IN_SUMMARY).exists()):
        (STATE / HANG_IN_SUMMARY).unlink(missing_ok=True)
        piece("half an ")
        (STATE / "hanging").touch()
        return
    if GARBAGE in text:
        for number in range(100):
            print(f"Segmentation fault {number}")
        sys.stdout.flush()
        return
    if BREAKS in text:
        piece("half an ")
        print('{"type":"result","subtype":"success","is_error":false,"resu', flush=True)
        return
    if ENDLESSLY in text:
        while True:
            piece("and so on " * 10_000)
    if LEAVES in text:
        sys.exit(0)
    if CRASHES in text:
        piece("half an ")
        os._exit(139)
    if SLOWLY in text:
        time.sleep(0.3)
        if is_hung_up():
            # Somebody wants it to end in the middle of its work: the file stays.
            return
    if THINKS in text:
        tell(type="assistant", parent_tool_use_id=None, message={"content": [{"type": "thinking", "thinking": "hm"}]})
    if SIGNED_OUT in text:
        (STATE / "asking").touch()
        while not (STATE / "refused").exists():
            time.sleep(0.01)
        why = "Failed to authenticate. API Error: 403"
        tell(type="result", subtype="success", is_error=True, result=why, session_id=CONVERSATION)
        return
    if ERRS in text:
        tell(
            type="result",
            subtype="error_max_turns",
            is_error=True,
            errors=["it was too much" + "!" * (10**6 * (LOUDLY in text)), f"and it had read ghp_{'b1' * 18}"],
            session_id=CONVERSATION,
        )
        return
    said = f"message {remembered()}: {text}"
    keep(type="assistant", uuid="a", message={"role": "assistant", "stop_reason": "end_turn", "content": [{"type": "text", "text": said}]})
    if WRITES in text:
        (STATE / "written").touch()
        return
    if SPLITS in text:
        blocks = [{"type": "text", "text": "first part"}, {"type": "text", "text": "second part"}]
        tell(type="assistant", parent_tool_use_id=None, message={"usage": {}, "content": blocks})
    used = {"input_tokens": 95 if FULL in text else 1, "output_tokens": 0}
    tell(type="assistant", parent_tool_use_id=None, message={"usage": used, "content": [{"type": "text", "text": said}]})
    is_busy.unlink()
    size = {"modelUsage": {"fake": {"contextWindow": 100}}} if FULL in text else {}
    tell(type="result", subtype="success", is_error=False, result=said, session_id=CONVERSATION, usage={}, total_cost_usd=0.0, **size)


def late(said: str) -> None:
    tell(type="assistant", parent_tool_use_id=None, message={"usage": {}, "content": [{"type": "text", "text": said}]})
    tell(type="result", subtype="success", is_error=False, result=said, session_id=CONVERSATION, usage={}, total_cost_usd=0.0)


def piece(text: str) -> None:
    tell(type="stream_event", parent_tool_use_id=None, event={"type": "content_block_delta", "delta": {"type": "text_delta", "text": text}})


def main() -> None:
    if "--resume" in sys.argv and not PLACE.exists():
        print(f"No conversation found with session ID: {CONVERSATION}", file=sys.stderr)
        sys.exit(1)
    PLACE.parent.mkdir(parents=True, exist_ok=True)
    (STATE / f"started-{os.getpid()}-{time.time_ns()}").touch()
    is_deaf = was_late = False
    for line in sys.stdin:
        event = json.loads(line)
        if event["type"] == "user":
            if was_late:
                # What it had to say to a message whose turn was interrupted comes only now.
                late("the late answer")
            was_late = LATE in event["message"]["content"]
            is_deaf = DEAF in event["message"]["content"]
            answer(event["message"]["content"].replace(DEAF, HANGS), event["uuid"])
        elif event["type"] == "control_request" and not is_deaf:
            tell(type="control_response", response={"subtype": "error", "request_id": event["request_id"]})
            if event["request"]["subtype"] == "interrupt":
                tell(type="result", subtype="error_during_execution", is_error=True, errors=[], session_id=CONVERSATION)


if __name__ == "__main__":
    main()
