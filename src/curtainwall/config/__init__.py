"""The user's configuration: a schema for each table, the loader and the editor of the file, and the secrets it names."""
