import sys

from deskhand.cli import main

sys.exit(main())
