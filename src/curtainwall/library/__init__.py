"""The Python interface: sessions and teams in the hands of a program."""
