"""The signature of an account, as part of the text that the person sees and approves."""

from deskhand.config import Settings
from deskhand.gate.actions import Action, Mail
from deskhand.mail import mime


def sign(action: Action, settings: Settings) -> Action:
    """The mail with its account's signature under it. A text that leaves as a page has none."""
    if not isinstance(action, Mail) or (mime.is_html(action.body) and not action.as_text):
        return action
    return action.model_copy(update={"body": with_signature(action.body, settings.signature_of(action.account))})


def with_signature(body: str, signature: str) -> str:
    """The text with the signature under it, once; an empty text is still to be written."""
    block = f"-- \n{signature.strip()}\n"
    if not signature.strip() or not body.strip() or body.endswith(block):
        return body
    return f"{body.rstrip()}\n\n{block}"
