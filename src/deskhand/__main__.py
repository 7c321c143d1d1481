"""`deskhand`: a server on stdio is a pipe to the running desk, everything else the whole command line."""

import sys

from deskhand import __version__, environment

BAD_CONFIGURATION = 3


def main() -> int:
    if sys.platform == "win32":
        return refuse()
    environment.forget_strangers()
    if sys.argv[1:2] == ["mcp"]:
        from deskhand.pipe import join

        try:
            code = join(sys.argv[2:])
        except KeyboardInterrupt:
            return 130
        if code is not None:
            return code
    if sys.argv[1:] == ["claude-hook"]:
        from deskhand.hook import main as answer

        return answer()
    from deskhand.memory import loading

    with loading():
        from deskhand.cli import main as run
    return run()


def refuse() -> int:
    """Say what this system lacks before anything is imported that it lacks too."""
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"deskhand {__version__}\n")
        return 0
    sys.stderr.write(environment.NO_WINDOWS)
    return BAD_CONFIGURATION


if __name__ == "__main__":
    sys.exit(main())
