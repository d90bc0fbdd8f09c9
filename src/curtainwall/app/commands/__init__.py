"""The commands of the program, one module for each group; `main` imports only the one that is wanted."""
