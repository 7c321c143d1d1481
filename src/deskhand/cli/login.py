"""`deskhand mail login`: the person signs the desk in to their mail account."""

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deskhand.cli.browser import open_privately
from deskhand.cli.command import ask_secret, command, flag, group
from deskhand.errors import InvalidInput

if TYPE_CHECKING:
    from deskhand.config import Settings


def add_to(mail: Any) -> None:
    login = group(mail, "login", "sign the desk in to a mail account")
    gmail = command(login, "gmail", _gmail, "sign in to Gmail in a browser")
    gmail.add_argument(
        "--client",
        type=Path,
        help="JSON of your desktop OAuth client at Google; once is enough",
    )
    flag(gmail, "--no-browser", "print the address instead of opening a browser")
    flag(
        gmail,
        "--paste",
        "the browser is on another machine: paste the address at which it ends",
    )
    imap = command(
        login,
        "imap",
        _imap,
        "keep the app password of the account that DESKHAND_IMAP_URL names",
    )
    oauth = command(
        login, "oauth", _oauth, "sign in to an IMAP account that takes no password"
    )
    flag(oauth, "--device", "on any device, by a code, where the provider has that")
    flag(oauth, "--no-browser", "print the address instead of opening a browser")
    flag(
        oauth,
        "--paste",
        "the browser is on another machine: paste the address at which it ends",
    )
    for each in (gmail, imap, oauth):
        each.add_argument(
            "--account",
            help="one of several accounts, by its name (default: the one of that kind)",
        )


def _settings_of(name: str | None, kind: str) -> "Settings":
    """The settings of the account that is meant: the one that is named, else the only one of that kind."""
    from deskhand.config import load

    settings = load().settings
    if not settings.accounts:
        return settings
    fitting = [account for account in settings.mail_accounts if account.kind == kind]
    if name is not None:
        fitting = [settings.find_account(name)]
    if len(fitting) != 1 or fitting[0].kind != kind:
        names = (
            ", ".join(
                account.name for account in settings.mail_accounts if account.kind == kind
            )
            or "none"
        )
        raise InvalidInput(
            f"say which {kind} account it is", hint=f"--account NAME; there are: {names}"
        )
    return settings.of_account(fitting[0])


def _gmail(options: argparse.Namespace) -> None:
    import anyio

    from deskhand.mail.gmail import GmailMailbox
    from deskhand.mail.google_auth import installed_client, known_client, sign_in

    settings = _settings_of(options.account, "gmail")
    client = installed_client(options.client) if options.client else known_client(settings)
    place = sign_in(
        settings,
        client,
        partial(_visit, settings, options),
        _paste if options.paste else None,
    )

    async def address() -> str:
        mailbox = GmailMailbox(settings)
        try:
            return await mailbox.address()
        finally:
            await mailbox.close()

    print(f"The token is kept in {place}.")
    print(f"Signed in as {anyio.run(address)}.")


def _visit(settings: "Settings", options: argparse.Namespace, url: str) -> None:
    print(f"Open this page and agree:\n{url}", flush=True)
    if not options.no_browser and not options.paste:
        open_privately(settings.home, url)


def _paste() -> str:
    return ask_secret(
        "The browser ends at a page that does not open. Paste its address here: "
    )


def _imap(options: argparse.Namespace) -> None:
    from deskhand.mail import credentials
    from deskhand.mail.accounts import imap_account, smtp_account
    from deskhand.mail.imap_session import ImapSession
    from deskhand.mail.smtp import try_sign_in

    settings = _settings_of(options.account, "imap")
    account = imap_account(settings)
    password = ask_secret(f"App password of {account.user} at {account.host}: ")
    ImapSession(account, password).close()
    print(
        f"The password is kept in {credentials.keep(settings.home, account.secret_name, password)}."
    )
    print(f"Signed in to {account.host}, where mail is read.", flush=True)
    if settings.smtp_url is None:
        print(
            "No account sends for it: set DESKHAND_SMTP_URL to smtps://USER@HOST, then `deskhand doctor`."
        )
        return
    relay = smtp_account(settings)
    try_sign_in(relay, relay.password or password)
    print(f"Signed in to {relay.host}, which sends it.")


def _oauth(options: argparse.Namespace) -> None:
    from deskhand.clock import utc_now
    from deskhand.mail.accounts import imap_account
    from deskhand.mail.bearer import (
        BearerTokens,
        has_browser_sign_in,
        sign_in_by_browser,
        sign_in_by_device,
    )
    from deskhand.mail.imap_session import ImapSession

    settings = _settings_of(options.account, "imap")
    account = imap_account(settings)
    if options.device or not has_browser_sign_in(settings):
        place = sign_in_by_device(settings, account, partial(print, flush=True))
    else:
        visit = partial(_visit, settings, options)
        place = sign_in_by_browser(
            settings, account, visit, _paste if options.paste else None
        )
    print(f"The token is kept in {place}.")
    ImapSession(account, BearerTokens(settings, account, utc_now).access()).close()
    print(f"Signed in to {account.host}, where mail is read.")
