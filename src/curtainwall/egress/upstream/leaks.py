"""Keeps keys out of what goes back to a client: every byte is looked at, and only what may be the beginning of a key waits for the next."""

from collections.abc import Sequence

Header = tuple[bytes, bytes]


class Guard:
    """Looks for secrets in one reply. A found one is overwritten in place, so that lengths stay true."""

    def __init__(self, secrets: Sequence[bytes]) -> None:
        self._secrets = tuple(secrets)
        self._kept = b""
        self.found = 0

    def headers(self, headers: Sequence[Header]) -> Sequence[Header]:
        """Return the headers that may pass."""
        whole = b"\n".join([part for header in headers for part in header])
        if not any(secret in whole for secret in self._secrets):
            return headers
        kept = [header for header in headers if not any(secret in part for secret in self._secrets for part in header)]
        self.found += len(headers) - len(kept)
        return kept

    def feed(self, data: bytes) -> bytes:
        """Return what may pass of the reply so far."""
        whole = self._kept + data if self._kept else data
        for secret in self._secrets:
            if secret in whole:
                self.found += 1
                whole = whole.replace(secret, b"*" * len(secret))
        held = self._beginning(whole)
        self._kept = whole[len(whole) - held :] if held else b""
        return whole[: len(whole) - held] if held else whole

    def rest(self) -> bytes:
        """Return what waited, now that nothing comes after it."""
        rest, self._kept = self._kept, b""
        return rest

    def _beginning(self, whole: bytes) -> int:
        """Return how many bytes at the end may be the beginning of a secret."""
        longest = 0
        for secret in self._secrets:
            at = whole.find(secret[:1], max(0, len(whole) - len(secret) + 1))
            while at >= 0:
                if secret.startswith(whole[at:]):
                    longest = max(longest, len(whole) - at)
                    break
                at = whole.find(secret[:1], at + 1)
        return longest
