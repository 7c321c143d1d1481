"""What sends a notification to the addresses that the person named; `doctor` tries whether it can be made."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from deskhand.errors import BadConfig

if TYPE_CHECKING:
    from pydantic import SecretStr

Send = Callable[[str, str], Awaitable[bool]]


def messenger(urls: "SecretStr | None") -> Send:
    """A function that sends to every address that `inbox.notify` names."""
    try:
        import apprise
    except ImportError:
        raise BadConfig(
            "notify is set, but apprise is not installed",
            hint="pip install 'deskhand[notify]'",
        ) from None
    asset = apprise.AppriseAsset(app_id="Deskhand", app_desc="Deskhand", app_url="")
    sender = apprise.Apprise(asset=asset)
    addresses = urls.get_secret_value().split() if urls else []
    for number, url in enumerate(addresses, 1):
        if not sender.add(url):
            # The URL itself may hold a password.
            scheme = url.partition("://")[0][:20]
            raise BadConfig(
                f"address {number} of notify is none that Apprise knows ({scheme}://…)",
                hint="correct DESKHAND_NOTIFY, or notify under [inbox] in config.toml",
            )
    plain_text = apprise.NotifyFormat.TEXT

    async def send(title: str, body: str) -> bool:
        return bool(
            await sender.async_notify(title=title, body=body, body_format=plain_text)
        )

    return send
