"""An offline stand-in for a language model: plain instructions become programs, and their results plain answers."""

from curtainwall.agents.builtin.models.demo.stand_in import DemoModel as DemoModel
