"""Waits until what was written is on the disk: macOS needs more than fsync for that."""

import os
import sys

if sys.platform == "darwin":
    import fcntl

    def sync(descriptor: int) -> None:
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)

    sync_data = sync
else:
    sync = os.fsync
    sync_data = getattr(os, "fdatasync", os.fsync)
