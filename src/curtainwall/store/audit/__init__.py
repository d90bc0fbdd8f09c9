"""The audit: its lines, the chain that binds the log, and the thread that keeps the files up to date."""
