"""The resident desk: the one process behind `deskhand up`, and what lives beside its page.

`up` runs all parts until a signal ends them, `doors` opens the MCP servers and the tasks REST, `lock` lets a desk run
once, `notify` tells the person elsewhere that something waits, `push` tells their browsers, `demo` is a throwaway desk
to look at.
"""
