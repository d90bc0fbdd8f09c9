"""Analysis of shell text: syntax, words, commands, and programs that run other programs."""
