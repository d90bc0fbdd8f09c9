"""Git as it is on disk and as agents name it: config, objects, references, remotes and pushes. Runs no git."""
