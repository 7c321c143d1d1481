"""Other people's mail servers, run from Debian's packages without being installed.

`run.py test` unpacks the packages into .judges/servers. Each server runs as root in a namespace of its own, where these
files lie over the machine's, and ends with it: nothing of the machine is changed, and servers that Debian does not
install side by side run side by side.

with Foreign("courier") as server:
    ImapAccount(server.port)
"""

import atexit
import os
import shutil
import socket
import subprocess
import tempfile
import threading
from functools import cache
from pathlib import Path
from typing import Self

import pytest

from tests.mail.dovecot import PASSWORD, free_port

PACKAGES = Path(__file__).resolve().parents[2] / ".judges" / "servers"
USERS = 200
OWN_NAMESPACE = ["unshare", "--mount", "--pid", "--fork", "--mount-proc"]
END = "\nread -r _  # until the test closes the pipe, or ends: with this shell everything in the namespace does\n"

BEGIN = f"""
set -e
mount -t tmpfs none /run
mount -t tmpfs none /mnt
mkdir /mnt/etc /mnt/scratch
mount -t overlay -o lowerdir={PACKAGES}/usr:/usr usr /usr
mount -t overlay -o lowerdir={PACKAGES}/etc:/etc,upperdir=/mnt/etc,workdir=/mnt/scratch etc /etc
users=$(seq -f user%g {USERS})
keep_passwords() {{
    for user in $users; do echo {PASSWORD} | saslpasswd2 -p -c -u test -f /mnt/sasldb2 $user; done
}}
"""
COURIER = f"""
mkdir -p /run/courier/authdaemon
hash=$(openssl passwd -5 {PASSWORD})
for user in $users; do
    mkdir -p /mnt/home/$user
    maildirmake.courier /mnt/home/$user/Maildir
    printf '%s\\tuid=65534|gid=65534|home=/mnt/home/%s|systempw=%s\\n' $user $user $hash
done > /etc/courier/userdb
chown -R 65534:65534 /mnt/home
chmod 600 /etc/courier/userdb
makeuserdb
sed -i 's/^authmodulelist=.*/authmodulelist="authuserdb"/' /etc/courier/authdaemonrc
authdaemond start
set -a
. /etc/courier/imapd
IMAP_IDLE_TIMEOUT=1
login=/usr/lib/courier/courier/imaplogin
couriertcpd -address=127.0.0.1 -maxprocs=200 -maxperip=200 -nodnslookup -noidentlookup $LISTEN $login \
    /usr/bin/imapd Maildir &
"""
CYRUS = """
echo 'cyrus:x:64000:64000::/mnt/cyrus:/bin/sh' >> /etc/passwd
keep_passwords
cat > /etc/imapd.conf <<END
configdirectory: /mnt/cyrus
partition-default: /mnt/cyrus/spool
defaultpartition: default
servername: test
sasl_pwcheck_method: auxprop
sasl_auxprop_plugin: sasldb
sasl_sasldb_path: /mnt/sasldb2
sasl_mech_list: PLAIN LOGIN
allowplaintext: yes
autocreate_quota: 0
autocreate_inbox_folders: Drafts|Sent|Junk|Trash
xlist-drafts: Drafts
xlist-sent: Sent
xlist-junk: Junk
xlist-trash: Trash
unixhierarchysep: yes
imapidlepoll: 1
END
cat > /etc/cyrus.conf <<END
START {
    recover cmd="/usr/sbin/cyrus ctl_cyrusdb -r"
}
SERVICES {
    imap cmd="imapd" listen="127.0.0.1:$LISTEN" prefork=1 maxchild=200
}
DAEMON {
    idled cmd="idled"
}
EVENTS { }
END
mkdir -p /mnt/cyrus/spool /mnt/cyrus/socket
chown -R 64000 /mnt/cyrus /mnt/sasldb2
/usr/lib/cyrus/bin/master -D &
"""
POSTFIX = """
echo 'postfix:x:64001:64001::/mnt:/bin/false' >> /etc/passwd
printf 'postfix:x:64001:\\npostdrop:x:64002:\\n' >> /etc/group
users=user1
keep_passwords
cd /mnt
mkdir -p data spool/pid /etc/postfix/sasl
for folder in active bounce corrupt defer deferred hold incoming private public saved; do mkdir spool/$folder; done
chown -R 64001 sasldb2 data spool
chown root spool spool/pid
cat > /etc/postfix/sasl/smtpd.conf <<END
pwcheck_method: auxprop
auxprop_plugin: sasldb
sasldb_path: /mnt/sasldb2
mech_list: PLAIN LOGIN
END
cat > /etc/postfix/main.cf <<END
compatibility_level = 3.6
queue_directory = /mnt/spool
data_directory = /mnt/data
command_directory = /usr/sbin
daemon_directory = /usr/lib/postfix/sbin
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
myhostname = test
mydestination =
local_recipient_maps =
relayhost = [127.0.0.1]:$RELAY
smtpd_tls_security_level = encrypt
smtpd_tls_chain_files = $CERTIFICATE
smtpd_sasl_auth_enable = yes
smtpd_sasl_local_domain = test
smtpd_tls_auth_only = yes
smtpd_relay_restrictions = permit_sasl_authenticated, reject
maillog_file = /mnt/log
maillog_file_prefixes = /mnt
END
cat > /etc/postfix/master.cf <<END
127.0.0.1:$LISTEN inet n - n - - smtpd
cleanup unix n - n - 0 cleanup
qmgr unix n - n 1 1 qmgr
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
smtp unix - - n - - smtp
error unix - - n - - error
tlsmgr unix - - n 1000? 1 tlsmgr
anvil unix - - n - 1 anvil
postlog unix-dgram n - n - 1 postlogd
END
/usr/lib/postfix/sbin/master -d &
"""
EXIM = f"""
echo 'Debian-exim:x:64003:64003::/mnt:/bin/false' >> /etc/passwd
echo 'Debian-exim:x:64003:' >> /etc/group
mkdir -p /mnt/spool /mnt/log
chown 64003:64003 /mnt/spool /mnt/log
cp $CERTIFICATE /mnt/server.pem
chown 64003 /mnt/server.pem
cat > /etc/exim.conf <<END
spool_directory = /mnt/spool
log_file_path = /mnt/log/%s
primary_hostname = test
tls_advertise_hosts = *
tls_certificate = /mnt/server.pem
smtputf8_advertise_hosts = *
auth_advertise_hosts = \\${{if eq{{\\$tls_in_cipher}}{{}}{{}}{{*}}}}
acl_smtp_rcpt = rcpt
begin acl
rcpt:
  accept authenticated = *
begin routers
on:
  driver = manualroute
  transport = out
  route_list = * 127.0.0.1
  self = send
begin transports
out:
  driver = smtp
  port = $RELAY
  allow_localhost
  hosts_try_fastopen = :
begin authenticators
plain:
  driver = plaintext
  public_name = PLAIN
  server_condition = \\${{if eq{{\\$auth3}}{{{PASSWORD}}}}}
  server_set_id = \\$auth2
END
exim4 -C /etc/exim.conf -bdf -q1m -oX 127.0.0.1.$LISTEN &
"""
SERVERS = {"courier": COURIER, "cyrus": CYRUS, "postfix": POSTFIX, "exim": EXIM}
PROGRAMS = {
    "courier": "usr/sbin/couriertcpd",
    "cyrus": "usr/lib/cyrus/bin/master",
    "postfix": "usr/sbin/postfix",
    "exim": "usr/sbin/exim4",
}


def demand(name: str) -> None:
    """Skip the test where this server cannot run, and say why."""
    if not (PACKAGES / PROGRAMS[name]).exists():
        pytest.skip(f"{name} is not unpacked (`run.py test` does it as root on Debian)")
    if os.getuid() != 0 or not shutil.which("unshare"):
        pytest.skip(f"{name} runs in a namespace of its own, which takes root and unshare")
    mounted = subprocess.run(
        [*OWN_NAMESPACE, "sh", "-c", BEGIN], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"{name} cannot run here: {mounted.stderr.strip()}")


class Foreign:
    """A running server of another house."""

    def __init__(self, name: str, **variables: str) -> None:
        demand(name)
        self.port = free_port()
        self._script = BEGIN + SERVERS[name] + END
        self._environment = os.environ | {"LISTEN": str(self.port)} | variables

    def __enter__(self) -> Self:
        self._log = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [*OWN_NAMESPACE, "sh", "-c", self._script],
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
        )
        self._await_greeting()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()
        self._process.wait(timeout=20)
        self._log.close()

    def restart(self) -> None:
        """End it with all that it keeps, and start it at the same port."""
        self.__exit__()
        self.__enter__()

    def log(self) -> str:
        self._log.seek(0)
        return self._log.read().decode("utf-8", "replace")

    def _await_greeting(self) -> None:
        for _ in range(1000):
            if self._greets():
                return
            threading.Event().wait(0.02)
        raise AssertionError(self.log())

    def _greets(self) -> bool:
        try:
            with socket.create_connection(
                ("127.0.0.1", self.port), timeout=20
            ) as connection:
                return connection.recv(4) in (b"* OK", b"220 ")
        except ConnectionError:
            return False


@cache
def shared(name: str) -> Foreign:
    """One for the whole test process."""
    server = Foreign(name).__enter__()
    atexit.register(server.__exit__)
    return server
