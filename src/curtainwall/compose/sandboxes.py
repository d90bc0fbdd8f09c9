"""What the sandboxes of this process are held to together, by the configuration and the size of the machine."""

from curtainwall.config.sandboxes import SandboxesSection
from curtainwall.host import MIB, ShareLimits, limits_of_this_machine


def share_limits(section: SandboxesSection) -> ShareLimits:
    """Return what sandboxes are held to: what the user wrote, and by the size of this machine what they left out."""
    here = limits_of_this_machine()
    commands = section.commands or max(here.commands, section.session_commands)
    # A total that was not written is never less than a part that was, and a part never more than the total.
    processes = section.processes if "processes" in section.model_fields_set else max(section.processes, section.session_processes)
    memory = section.memory * MIB if section.memory else max(here.memory, (section.session_memory or 0) * MIB)
    return ShareLimits(
        session_commands=min(section.session_commands, commands),
        commands=commands,
        session_memory=section.session_memory * MIB if section.session_memory else min(here.session_memory, memory),
        memory=memory,
        session_processes=min(section.session_processes, processes),
        processes=processes,
    )
