"""Messages between agents: seed 004. This file stays empty of imports, because a hook passes through it."""
