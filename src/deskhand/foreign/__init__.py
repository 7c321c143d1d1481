"""Other MCP servers behind the gate: `guard.toml` names them, the desk starts and keeps them, rules say what passes."""
