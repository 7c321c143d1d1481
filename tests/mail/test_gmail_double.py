"""The Gmail double is honest: it does what Google's document says, and Google's own client is content with it."""

import base64
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.mail import discovery
from tests.mail.gmail_double import CLIENT, HANDLERS, MODIFY, GmailDouble
from tests.mail.letters import letter
from tests.requirements import requirement


@pytest.fixture
def gmail() -> Iterator[GmailDouble]:
    with GmailDouble() as double:
        yield double


@pytest.fixture
def http(gmail: GmailDouble) -> Iterator[httpx2.Client]:
    form = {"grant_type": "refresh_token", "refresh_token": "refresh-1"}
    token = httpx2.post(f"{gmail.origin}/token", data=form | CLIENT, timeout=60).json()[
        "access_token"
    ]
    with httpx2.Client(
        base_url=f"{gmail.origin}/gmail/v1/users/me/",
        headers={"Authorization": f"Bearer {token}"},
        timeout=60,
    ) as client:
        yield client


@pytest.fixture
def users(gmail: GmailDouble) -> Iterator[Any]:
    """Google's client with every address on loopback. Never its batch: that goes to Google, whatever is set."""
    from google.oauth2.credentials import Credentials
    from googleapiclient.discovery import build_from_document

    # Not from_authorized_user_file: that goes to Google for a token, whatever the file says.
    credentials = Credentials(  # type: ignore[no-untyped-call]
        token=None,
        refresh_token="refresh-1",
        token_uri=f"{gmail.origin}/token",
        scopes=[MODIFY],
        **CLIENT,
    )
    options = {"api_endpoint": gmail.origin}
    with build_from_document(
        discovery.DOCUMENT, credentials=credentials, client_options=options
    ) as service:
        yield service.users()


@requirement("gmail:honest-double")
def test_each_method_of_the_double_is_one_of_googles() -> None:
    assert set(HANDLERS) <= {method.name for method in discovery.methods()}


@requirement("gmail:honest-double")
@pytest.mark.parametrize(
    ("verb", "path", "body", "status", "message"),
    [
        ("GET", "messages?colour=red", None, 400, "Unknown name"),
        ("GET", "messages?maxResults=many", None, 400, "maxResults"),
        ("GET", "messages?includeSpamTrash=perhaps", None, 400, "includeSpamTrash"),
        ("GET", "messages?fields=messages(colour)", None, 400, "Invalid field selection"),
        ("GET", "messages?fields=messages(id", None, 400, "Invalid field selection"),
        ("GET", "messages/18d5a00000000001?format=pretty", None, 400, "format"),
        ("GET", "messages/nonsense", None, 400, "Invalid id value"),
        ("GET", "messages/18d5a0000000ffff", None, 404, "not found"),
        ("GET", "nothing", None, 404, "no method"),
        ("POST", "messages/send", {"raw": "", "colour": "red"}, 400, "Unknown name"),
        ("POST", "messages/send", {"raw": 7}, 400, "not of type string"),
        ("POST", "messages/send", {}, 400, "raw"),
        ("POST", "messages/send", {"raw": "U3ViamVjdDogeA0KDQp4"}, 400, "Recipient"),
        ("POST", "labels", {"name": "inbox"}, 409, "exists"),
        (
            "POST",
            "messages/18d5a00000000001/modify",
            {"addLabelIds": ["Nothing"]},
            400,
            "Invalid label",
        ),
        ("POST", "drafts/send", {"id": "r1"}, 404, "not found"),
    ],
)
def test_what_google_refuses_the_double_refuses(
    gmail: GmailDouble,
    http: httpx2.Client,
    verb: str,
    path: str,
    body: Any,
    status: int,
    message: str,
) -> None:
    gmail.account.deliver(letter())

    answer = http.request(verb, path, json=body)

    assert answer.status_code == status
    assert message in answer.json()["error"]["message"]


@requirement("gmail:honest-double")
def test_nobody_enters_without_a_token_nor_beyond_its_scope(
    gmail: GmailDouble, http: httpx2.Client
) -> None:
    assert (
        httpx2.get(f"{gmail.origin}/gmail/v1/users/me/profile", timeout=60).status_code
        == 401
    )

    gmail.scope = "https://www.googleapis.com/auth/gmail.send"
    assert http.get("messages").status_code == 403


@requirement("gmail:honest-double")
def test_an_answer_that_is_not_googles_is_a_defect_of_the_double() -> None:
    assert (
        discovery.mismatch(
            {"$ref": "Message"}, {"id": "1", "labelIds": ["INBOX"], "sizeEstimate": 3}
        )
        is None
    )
    for wrong in (
        {"ID": "1"},
        {"id": 1},
        {"labelIds": "INBOX"},
        {"internalDate": "today"},
        {"payload": {"body": 3}},
    ):
        assert discovery.mismatch({"$ref": "Message"}, wrong) is not None, wrong


@requirement("gmail:honest-double")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_googles_own_client_goes_through_a_mails_whole_life(
    gmail: GmailDouble, users: Any
) -> None:
    first = gmail.account.deliver(
        letter(subject="Plan", message_id="<one@example.org>", attachment="plan.pdf")
    )

    assert users.getProfile(userId="me").execute()["emailAddress"] == "me@example.com"
    listed = (
        users.messages()
        .list(userId="me", q="subject:plan is:unread", maxResults=5)
        .execute()
    )
    assert listed == {
        "messages": [{"id": first.id, "threadId": first.thread_id}],
        "resultSizeEstimate": 1,
    }
    full = users.messages().get(userId="me", id=first.id).execute()
    assert [part["filename"] for part in full["payload"]["parts"]] == ["", "plan.pdf"]
    some = (
        users.messages()
        .get(userId="me", id=first.id, format="metadata", metadataHeaders=["Subject"])
        .execute()
    )
    assert some["payload"]["headers"] == [{"name": "Subject", "value": "Plan"}]

    label = users.labels().create(userId="me", body={"name": "Done"}).execute()
    change = {"addLabelIds": [label["id"]], "removeLabelIds": ["INBOX", "UNREAD"]}
    users.messages().modify(userId="me", id=first.id, body=change).execute()
    assert gmail.account.mails[first.id].labels == [label["id"]]

    answer = letter(
        subject="Re: Plan",
        to="ann@example.org",
        references="<one@example.org>",
        message_id="<x@example>",
    )
    raw = base64.urlsafe_b64encode(answer).decode()
    draft = (
        users.drafts()
        .create(userId="me", body={"message": {"raw": raw, "threadId": first.thread_id}})
        .execute()
    )
    assert users.drafts().get(userId="me", id=draft["id"]).execute()["message"][
        "labelIds"
    ] == ["DRAFT"]
    assert [
        each["id"] for each in users.drafts().list(userId="me").execute()["drafts"]
    ] == [draft["id"]]
    sent = users.drafts().send(userId="me", body={"id": draft["id"]}).execute()
    thread = (
        users.threads().get(userId="me", id=first.thread_id, format="minimal").execute()
    )

    assert [each["id"] for each in thread["messages"]] == [first.id, sent["id"]]
    assert gmail.delivered == [answer]


@requirement("gmail:honest-double")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_googles_own_client_understands_the_refusals_and_renews_its_token(
    gmail: GmailDouble, users: Any
) -> None:
    from googleapiclient.errors import HttpError

    with pytest.raises(HttpError) as missing:
        users.messages().get(userId="me", id="18d5a0000000ffff").execute()
    gmail.expire()

    assert missing.value.status_code == 404
    assert missing.value.reason == "Requested entity was not found."
    assert users.getProfile(userId="me").execute()["emailAddress"] == "me@example.com"
    assert gmail.asked.count("token") == 2
