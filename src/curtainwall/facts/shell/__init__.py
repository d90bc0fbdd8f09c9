"""Shell text: its syntax, its words, its commands, and the programs that run other programs."""
