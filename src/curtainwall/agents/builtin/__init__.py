"""The built-in agent: a loop around a model whose only tool is a program, which runs in a confined worker and survives every wait."""

from curtainwall.agents.builtin.agent import BuiltinAgent as BuiltinAgent
from curtainwall.agents.builtin.language_model import LanguageModel as LanguageModel
from curtainwall.agents.builtin.program import ProgramRunner as ProgramRunner
from curtainwall.agents.builtin.snapshots import SnapshotSeal as SnapshotSeal
from curtainwall.agents.builtin.turn import BuiltinPorts as BuiltinPorts
from curtainwall.agents.builtin.workers import CodeLimits as CodeLimits
from curtainwall.agents.builtin.workers import Workers as Workers
