"""The command line: commands, the screen, completion."""
