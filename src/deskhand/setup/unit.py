"""The system unit of a guarded desk: every restriction of systemd that the desk can live with."""

from deskhand.guard import HOME, PYTHON, USER, Guard

_COLON = "\\:"
"""In BindPaths a colon divides two paths."""
_UNIT = """\
[Unit]
Description=Deskhand, guarded: the desk of {person}
After=network-online.target
Wants=network-online.target
StartLimitIntervalSec=0

[Service]
ExecStart={python} -I -m deskhand up --no-browser
Environment=DESKHAND_HOME={home}
User={user}
Group={user}
WorkingDirectory={home}
StateDirectory=deskhand
StateDirectoryMode=0700
RuntimeDirectory=deskhand
RuntimeDirectoryMode=0711
UMask=0077
Restart=on-failure
RestartSec=5
TimeoutStopSec=15
LimitNOFILE=8192
TasksMax=256
{vaults}NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
ProtectHome=tmpfs
PrivateTmp=yes
PrivateMounts=yes
PrivateDevices=yes
DevicePolicy=closed
PrivateIPC=yes
RemoveIPC=yes
KeyringMode=private
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
ProtectProc=invisible
ProcSubset=pid
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
SystemCallErrorNumber=EPERM

[Install]
WantedBy=multi-user.target
"""


def text_of(made: Guard) -> bytes:
    lines = [
        f"BindPaths={_quote(each.replace(':', _COLON))}\nReadWritePaths={_quote(each)}\n"
        for each in made.vaults
    ]
    return _UNIT.format(
        person=made.person, python=PYTHON, home=HOME, user=USER, vaults="".join(lines)
    ).encode()


def _quote(path: str) -> str:
    """As systemd reads a path: `%` means something there."""
    escaped = path.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'
