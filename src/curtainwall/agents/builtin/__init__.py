"""Our own agent: a loop around a model whose one tool is a program, run in a confined worker and durable across every wait."""

from curtainwall.agents.builtin.loop import BuiltinAgent
from curtainwall.agents.builtin.program import Programs
from curtainwall.agents.builtin.seal import Seal
from curtainwall.agents.builtin.talk import Model
from curtainwall.agents.builtin.turn import Around
from curtainwall.agents.builtin.workers import CodeLimits, Workers

__all__ = ["Around", "BuiltinAgent", "CodeLimits", "Model", "Programs", "Seal", "Workers"]
