"""The commands of the program, each group in a module of its name; `main` imports only the wanted one."""
