"""`deskhand`: a server on stdio is a pipe to the running desk, everything else the whole command line."""

import sys


def main() -> int:
    if sys.argv[1:2] == ["mcp"]:
        from deskhand.pipe import join

        try:
            code = join(sys.argv[2:])
        except KeyboardInterrupt:
            return 130
        if code is not None:
            return code
    from deskhand.cli import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
