"""Everything that a user sets: a schema for each table, the loader and the editor of the file, and where things are in the home."""
