"""The built-in agent: a loop around a model whose only tool is a program, which runs in a confined worker and survives every wait."""

from curtainwall.agents.builtin.agent import BuiltinAgent
from curtainwall.agents.builtin.language_model import LanguageModel
from curtainwall.agents.builtin.program import ProgramRunner
from curtainwall.agents.builtin.snapshots import SnapshotSeal
from curtainwall.agents.builtin.turn import BuiltinPorts
from curtainwall.agents.builtin.workers import CodeLimits, Workers

__all__ = ["BuiltinAgent", "BuiltinPorts", "CodeLimits", "LanguageModel", "ProgramRunner", "SnapshotSeal", "Workers"]
