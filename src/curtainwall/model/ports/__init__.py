"""Where the runtime meets everything else: small protocols, at most five methods each, by who is on the other side."""
