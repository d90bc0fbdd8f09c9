"""Reads git repositories on disk, and remotes as agents name them: config, objects, refs, pushes. Runs no git."""
