"""All agents behind one port: our built-in one, which writes programs, and external ones. Channels cannot tell them apart."""
