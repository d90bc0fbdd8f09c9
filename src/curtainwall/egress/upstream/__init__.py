"""The provider's side of a request: the connection, the exchange, its framing, its usage and its keys."""
