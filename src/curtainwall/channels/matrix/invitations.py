"""Invitations into rooms, as the homeserver tells them."""

from collections.abc import Iterator

from curtainwall.channels.matrix.events import Raw, rows, table, text_of


def invitations(found: Raw, own: str) -> Iterator[tuple[str, str]]:
    """Yield each room that we are invited to, and by whom."""
    for room, info in table(found.get("invite")).items():
        for raw in rows(table(table(info).get("invite_state")).get("events")):
            inviter = text_of(raw.get("sender"))
            is_ours = raw.get("type") == "m.room.member" and raw.get("state_key") == own
            if is_ours and table(raw.get("content")).get("membership") == "invite" and inviter is not None:
                yield room, inviter
                break
