"""Matrix as a service: rooms lead to sessions."""
