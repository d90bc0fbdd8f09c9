#!/usr/bin/python3 -I
"""Stands in for Claude Code and answers at once, so that what is left of a turn is ours and the pipe's."""

import json
import sys


def main() -> None:
    """Answer each message with a message and the end of the turn."""
    option = "--session-id" if "--session-id" in sys.argv else "--resume"
    conversation = sys.argv[sys.argv.index(option) + 1]
    begun = {
        "type": "system",
        "subtype": "init",
        "session_id": conversation,
        "mcp_servers": [{"name": "curtainwall", "status": "connected"}],
    }
    ended: dict[str, object] = {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "result": "",
        "session_id": conversation,
        "usage": {},
    }
    for line in sys.stdin:
        event = json.loads(line)
        if event["type"] != "user":
            continue
        said = {"content": [{"type": "text", "text": event["message"]["content"]}]}
        answer = {"type": "assistant", "parent_tool_use_id": None, "message": said}
        sys.stdout.write("".join(json.dumps(each) + "\n" for each in (begun, answer, ended)))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
