"""The signature of an account, as part of the text that the person sees and approves."""

from deskhand.config import Settings
from deskhand.gate.actions import Action, Mail, Proposal, SendEmail
from deskhand.mail import mime


def sign(action: Action, settings: Settings) -> Action:
    """The mail with its account's signature under it. A text that leaves as a page has none."""
    if not isinstance(action, Mail) or (mime.is_html(action.body) and not action.as_text):
        return action
    return action.model_copy(
        update={"body": with_signature(action.body, settings.signature_of(action.account))}
    )


def finish(meant: Action, proposal: Proposal, settings: Settings) -> Action:
    """What was meant, exactly as it would leave: with its signature, and as HTML where that was asked for."""
    action = sign(meant, settings)
    if isinstance(action, Mail) and isinstance(proposal, SendEmail) and proposal.html:
        return action.with_html()
    return action


def with_signature(body: str, signature: str) -> str:
    """The text with the signature under it, once; an empty text is still to be written."""
    block = f"-- \n{signature.strip()}\n"
    if not signature.strip() or not body.strip() or body.endswith(block):
        return body
    return f"{body.rstrip()}\n\n{block}"
