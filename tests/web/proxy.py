"""A real nginx that speaks TLS before a desk, with a certificate of its own authority."""

import base64
import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path

import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

NGINX = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
NAME = "desk.example.net"
STRANGER = "127.0.0.9"
"""Where a proxy comes from that nobody named."""
PEM = serialization.Encoding.PEM

needs_nginx = pytest.mark.skipif(
    NGINX is None, reason="nginx is not installed; `run.py test` does it as root on Debian"
)

# Each listener is open before nginx starts, and handed to it: no port is guessed, and nobody waits for it.
_CONFIG = """
daemon off; master_process on; worker_processes 1; pid nginx.pid; error_log stderr crit;
events {{ }}
http {{
  access_log off; proxy_buffering off; proxy_http_version 1.1;
  client_body_temp_path body; proxy_temp_path proxied; fastcgi_temp_path a; uwsgi_temp_path b; scgi_temp_path c;
  proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
  proxy_set_header X-Forwarded-Proto $scheme;
  proxy_set_header Host $http_host;
  ssl_certificate server.pem; ssl_certificate_key server.pem;
  server {{ listen 127.0.0.1:{tls} ssl; location / {{ proxy_pass {desk}; }} }}
  server {{ listen 127.0.0.1:{plain}; location / {{ proxy_pass {desk}; }} }}
  server {{ listen 127.0.0.1:{stranger} ssl; location / {{ proxy_pass {desk}; proxy_bind {address}; }} }}
}}
"""


@dataclass(frozen=True, slots=True)
class Proxy:
    """The listeners: by TLS, without it, and by TLS from an address that the desk was not told of."""

    folder: Path
    tls: socket.socket
    plain: socket.socket
    stranger: socket.socket
    fingerprint: str
    """Of the server's key, by which a browser knows it."""

    @property
    def origin(self) -> str:
        return f"https://{NAME}:{port_of(self.tls)}"

    @property
    def trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.folder / "ca.pem")

    def client(self, listener: socket.socket, **headers: str) -> httpx2.AsyncClient:
        """Somebody who asks the desk under its own name."""
        scheme = "http" if listener is self.plain else "https"
        named = {"Host": self.origin.removeprefix("https://")} | headers
        return httpx2.AsyncClient(
            base_url=f"{scheme}://127.0.0.1:{port_of(listener)}",
            headers=named,
            verify=self.trust,
            timeout=60,
        )

    @property
    def browser_flags(self) -> list[str]:
        # A list of known keys, not "ignore all errors": behind an error a browser has no passkeys.
        known = f"--ignore-certificate-errors-spki-list={self.fingerprint}"
        return [f"--host-resolver-rules=MAP {NAME} 127.0.0.1", known]

    @contextmanager
    def before(self, desk: str) -> Iterator[None]:
        """nginx, in front of the desk at this address."""
        assert NGINX is not None
        listeners = [self.tls, self.plain, self.stranger]
        ports = dict(
            zip(("tls", "plain", "stranger"), map(port_of, listeners), strict=True)
        )
        config = self.folder / "nginx.conf"
        config.write_text(_CONFIG.format(desk=desk, address=STRANGER, **ports))
        numbers = [each.fileno() for each in listeners]
        inherited = {"NGINX": "".join(f"{number};" for number in numbers)}
        command = [NGINX, "-p", str(self.folder), "-c", str(config)]
        process = subprocess.Popen(command, pass_fds=numbers, env=inherited)
        try:
            yield
        finally:
            process.terminate()
            process.wait(30)


@contextmanager
def made_proxy(folder: Path) -> Iterator[Proxy]:
    with ExitStack() as stack:
        tls, plain, stranger = (
            stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)
        )
        yield Proxy(folder, tls, plain, stranger, write_certificates(folder))


def port_of(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])


def write_certificates(folder: Path) -> str:
    authority, key = (
        ec.generate_private_key(ec.SECP256R1()),
        ec.generate_private_key(ec.SECP256R1()),
    )
    issuer = x509.Name(
        [x509.NameAttribute(x509.NameOID.COMMON_NAME, "an authority for tests")]
    )
    names = [
        x509.DNSName(NAME),
        x509.DNSName("localhost"),
        x509.IPAddress(ip_address("127.0.0.1")),
    ]
    root = _certificate(issuer, issuer, authority).add_extension(
        x509.BasicConstraints(True, None), True
    )
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, NAME)])
    server = _certificate(subject, issuer, key).add_extension(
        x509.SubjectAlternativeName(names), False
    )
    form = (PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    signed = server.sign(authority, hashes.SHA256()).public_bytes(PEM)
    (folder / "ca.pem").write_bytes(root.sign(authority, hashes.SHA256()).public_bytes(PEM))
    (folder / "server.pem").write_bytes(key.private_bytes(*form) + signed)
    public = key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return base64.b64encode(sha256(public).digest()).decode()


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    today = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(today - timedelta(days=1))
        .not_valid_after(today + timedelta(days=1))
    )
