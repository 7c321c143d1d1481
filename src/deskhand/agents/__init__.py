"""Messages between agents, in the form of the program AgentMail. It imports nothing: a hook passes through it."""
