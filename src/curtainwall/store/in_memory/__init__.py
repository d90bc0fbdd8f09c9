"""The store in memory, for tests and for sessions that nobody keeps."""
