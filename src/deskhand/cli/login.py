"""`deskhand mail login`: the person signs the desk in to their mail account."""

import argparse
from pathlib import Path
from typing import Any

from deskhand.cli.browser import open_privately
from deskhand.cli.command import ask_secret, command, flag, group


def add_to(mail: Any) -> None:
    login = group(mail, "login", "sign the desk in to a mail account")
    gmail = command(login, "gmail", _gmail, "sign in to Gmail in a browser")
    gmail.add_argument("--client", type=Path, help="JSON of your desktop OAuth client at Google; once is enough")
    flag(gmail, "--no-browser", "print the address instead of opening a browser")
    command(login, "imap", _imap, "keep the app password of the account that DESKHAND_IMAP_URL names")


def _gmail(options: argparse.Namespace) -> None:
    import anyio

    from deskhand.config import load
    from deskhand.mail.gmail import GmailMailbox
    from deskhand.mail.google_auth import installed_client, known_client, sign_in

    settings = load().settings

    def visit(url: str) -> None:
        print(f"Open this page and agree:\n{url}", flush=True)
        if not options.no_browser:
            open_privately(settings.home, url)

    client = installed_client(options.client) if options.client else known_client(settings)
    place = sign_in(settings, client, visit)

    async def address() -> str:
        mailbox = GmailMailbox(settings)
        try:
            return await mailbox.address()
        finally:
            await mailbox.close()

    print(f"The token is kept in {place}.")
    print(f"Signed in as {anyio.run(address)}.")


def _imap(options: argparse.Namespace) -> None:
    from deskhand.config import load
    from deskhand.mail import credentials
    from deskhand.mail.accounts import imap_account, smtp_account
    from deskhand.mail.imap_session import ImapSession
    from deskhand.mail.smtp import try_sign_in

    del options
    settings = load().settings
    account = imap_account(settings)
    password = ask_secret(f"App password of {account.user} at {account.host}: ")
    ImapSession(account, password).close()
    print(f"The password is kept in {credentials.keep(settings.home, account.secret_name, password)}.")
    print(f"Signed in to {account.host}, where mail is read.", flush=True)
    if settings.smtp_url is None:
        print("No account sends for it: set DESKHAND_SMTP_URL to smtps://USER@HOST, then `deskhand doctor`.")
        return
    relay = smtp_account(settings)
    try_sign_in(relay, relay.password or password)
    print(f"Signed in to {relay.host}, which sends it.")
