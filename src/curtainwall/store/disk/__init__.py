"""The store on disk: one SQLite database, its writer, its readers and its watchers."""
