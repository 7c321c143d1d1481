"""Messages between agents, in the form of the program AgentMail. This file stays empty of imports, because a hook passes through it."""
