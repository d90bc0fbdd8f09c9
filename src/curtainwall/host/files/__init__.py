"""Files by descriptor: opened beneath a directory, locked, followed, compared, and set aside."""
