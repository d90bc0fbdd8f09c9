"""Teams that ask each other: their conversations, who works for them, and the tools with which agents and people talk to a team."""
