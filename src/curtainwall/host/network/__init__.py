"""Connections: to judged hosts, over Unix sockets, with TLS or without."""
