"""A yes that is a signature: what counts, what does not, and that nobody can make one afterwards."""

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa, x25519

from deskhand import audit
from deskhand.errors import Denied, InvalidInput, NotFound
from deskhand.gate import passkeys, passwords, webauthn
from deskhand.gate.cards import Card
from deskhand.gate.claims import Signed, Typed
from deskhand.gate.forgery import Forged, Genuine, check_answers
from deskhand.gate.letters import Letter
from deskhand.gate.outcomes import NotApproved
from deskhand.gate.permissions import Terms
from deskhand.gate.proofs import Proven, say_answer
from deskhand.gate.question import Question
from deskhand.gate.rows import KeptAnswer, WrittenAnswer
from deskhand.gate.webauthn import ENROL, Assertion, KeptAssertion, NewKey, Said
from deskhand.store import Transaction
from tests.gate.authenticator import ORIGIN, Authenticator, PrivateKey
from tests.gate.safe_desk import PASSWORD
from tests.gate.site import HELLO
from tests.gate.test_proofs import Safe, opened
from tests.home import Home
from tests.requirements import requirement

pytestmark = pytest.mark.anyio
SESSION = "a session"


class Signer:
    """The person with an authenticator at a desk that asks for a signature with each answer."""

    def __init__(self, safe: Safe) -> None:
        self.safe = safe
        self.desk = safe.desk
        self.device = Authenticator()

    def nonce(self, place: str = SESSION) -> str:
        return passkeys.make_nonce(self.desk.policy.seal, place, self.desk.now())

    async def enrol(self, name: str = "my phone", **changes: Any) -> None:
        nonce = self.nonce()
        given = NewKey(**self.device.make(nonce, ENROL.challenge(nonce), **changes))
        key = webauthn.read_new_key(given, ORIGIN, name, self.desk.now())
        await self.desk.store.write(
            passkeys.add, self.desk.policy.seal, key, SESSION, nonce, self.desk.now()
        )

    def sign(
        self,
        word: str,
        *cards: Card,
        nonce: str | None = None,
        words: str | None = None,
        **client: Any,
    ) -> Signed:
        nonce = nonce or self.nonce()
        said = say_answer(word, [(card.id, card.digest) for card in cards], words)
        return self.signed(said, nonce, **client)

    def signed(self, said: Said, nonce: str, **client: Any) -> Signed:
        made = self.device.sign(nonce, said.challenge(nonce), **client)
        return Signed(Assertion(**made), ORIGIN, SESSION)

    async def approve(self, card: Card, claim: Signed | None = None) -> Card:
        return await self.desk.answers.approve(
            card.id, card.digest, "person", claim or self.sign("approved", card)
        )

    async def change(self, sql: str, *values: Any) -> None:
        def work(tx: Transaction) -> None:
            tx.execute(sql, *values)

        await self.desk.store.write(work)

    async def check(self) -> Genuine | Forged:
        return await self.desk.store.read(check_answers, self.desk.policy)


@pytest.fixture
async def signer(home: Home) -> AsyncIterator[Signer]:
    async with opened(home) as safe:
        made = Signer(safe)
        await made.enrol()
        yield made


@requirement("passkey:signed")
async def test_each_answer_is_signed_stored_and_found_again(signer: Signer) -> None:
    answers = signer.desk.answers
    first, second, third = [
        await signer.safe.ask(subject=f"Number {number}") for number in range(3)
    ]
    assert (await signer.approve(first)).state == "held"
    await answers.undo(first.id, "person", signer.sign("undone", first))
    later = signer.safe.clock.time + timedelta(hours=1)
    await answers.snooze(first.id, later, "person", signer.sign("snoozed", first))
    await answers.wake(first.id, "person", signer.sign("woken", first))
    await answers.reject(
        third.id,
        third.digest,
        "no",
        "person",
        signer.sign("rejected", third, words="no"),
    )
    letter = Letter(HELLO["to"], "Mine", "At nine.\n")
    said = await answers.make_said("approved", [(first.id, first.digest)], letter)
    edited = await answers.approve_edited(
        first.id, first.digest, letter, "person", signer.signed(said, signer.nonce())
    )
    assert (edited.state, edited.subject) == ("held", "Mine")
    await answers.respond(
        second.id,
        second.digest,
        "Later.",
        "person",
        signer.sign("responded", second, words="Later."),
    )
    fourth = await signer.safe.ask(subject="Number 4")
    said = await answers.make_said("edited", [(fourth.id, fourth.digest)], letter)
    await answers.edit(
        fourth.id, fourth.digest, letter, "person", signer.signed(said, signer.nonce())
    )

    assert await signer.safe.settle() == 1
    words = [word for word, proof in await signer.safe.answers() if proof == "passkey"]
    assert sorted(words) == sorted(
        [
            "held",
            "undone",
            "snoozed",
            "woken",
            "rejected",
            "edited",
            "held",
            "rejected",
            "responded",
            "edited",
        ]
    )
    assert await signer.check() == Genuine(10)
    told = signer.safe.home.command(
        "log", "--verify", "--json", DESKHAND_ADDRESS="me@example.com"
    )
    assert json.loads(told.stdout)["signatures"] == 10
    entries = await signer.desk.store.read(lambda tx: tx.all("SELECT entry FROM audit"))
    proofs = [
        json.loads(text)["parameters"] for (text,) in entries if '"kind":"passkey"' in text
    ]
    assert len(proofs) == 10
    for facts in proofs:
        assert facts["proof"] == {
            "kind": "passkey",
            "credential": webauthn.encode(signer.device.id),
            "digest": facts["digest"],
        }


@requirement("passkey:signed")
async def test_one_signature_over_a_list_approves_all_of_it(signer: Signer) -> None:
    await signer.approve(await signer.safe.ask())
    assert await signer.safe.settle() == 1
    cards = [await signer.safe.ask(subject=f"Number {number}") for number in range(3)]
    listed = [(card.id, card.digest) for card in cards]
    with pytest.raises(Denied, match="something else"):
        await signer.desk.answers.approve_all(
            listed, "person", signer.sign("approved", *cards[:2])
        )
    held = await signer.desk.answers.approve_all(
        listed, "person", signer.sign("approved", *reversed(cards))
    )
    assert [card.state for card in held] == ["held"] * 3
    assert await signer.safe.settle() == 4
    assert await signer.check() == Genuine(4)


@requirement("permission:signed")
async def test_a_permissions_terms_are_what_was_signed(signer: Signer) -> None:
    answers = signer.desk.answers
    card = await signer.approve(await signer.safe.ask())
    await signer.safe.settle()
    terms = Terms(2, signer.safe.clock.time + timedelta(days=7))
    more = replace(terms, per_day=50)
    said = await answers.make_said_to_permit(card.id, card.digest, terms)
    for other in (signer.sign("permitted", card), signer.signed(said, signer.nonce())):
        with pytest.raises(Denied, match="something else"):
            await answers.permit(card.id, card.digest, more, "person", other)
    made = await answers.permit(
        card.id, card.digest, terms, "person", signer.signed(said, signer.nonce())
    )
    assert (await signer.safe.ask(body="At eleven.\n")).state == "held"
    assert await signer.check() == Genuine(2)

    # With the database and the desk's key, but without the authenticator, nobody widens it.
    wider = replace(made, per_day=50)
    sql = "UPDATE permissions SET per_day = ?, evidence = ?"
    await signer.change(sql, 50, signer.desk.policy.sign_terms(wider))
    assert (await signer.safe.ask(body="At twelve.\n")).state == "waiting"
    assert (
        await signer.safe.settle() == 1
    )  # nor does what it let through before leave under it
    found = await signer.check()
    assert isinstance(found, Forged)
    assert (
        found.why
        == f"the permission {made.id} says something else than what a passkey signed"
    )
    await signer.change(sql, 2, made.evidence)
    await signer.desk.store.write(
        passkeys.revoke, signer.desk.policy.seal, "my phone", signer.safe.clock.time
    )
    assert (await signer.safe.ask(body="At one.\n")).state == "waiting"
    assert isinstance(
        await signer.check(), Genuine
    )  # what it signed before stays what it was


@requirement("permission:signed")
async def test_a_permission_that_was_signed_before_terms_were_goes_on(
    signer: Signer,
) -> None:
    card = await signer.approve(await signer.safe.ask())
    await signer.safe.settle()
    card = await signer.safe.card(card)
    said = Said(word="permitted", about=((card.id, card.digest),))
    signature = KeptAssertion(
        said=said, assertion=signer.signed(said, signer.nonce()).assertion
    )
    answer = signer.desk.policy.answer("permitted", "person", Proven("passkey", signature))
    request = await signer.desk.waiting.find(card.id)
    terms = Terms(2, signer.safe.clock.time + timedelta(days=7))
    await signer.desk.permitting.make(request, card, terms, answer)
    assert (await signer.safe.ask(body="At eleven.\n")).state == "held"
    assert await signer.check() == Genuine(2)
    await signer.change("UPDATE permissions SET per_day = 50")
    assert (await signer.safe.ask(body="At twelve.\n")).state == "waiting"


@requirement("passkey:refused")
async def test_what_does_not_count_is_refused_and_nothing_is_sent(signer: Signer) -> None:
    card = await signer.safe.ask()
    other = await signer.safe.ask(subject="Another one")
    used = signer.sign("approved", card)
    await signer.approve(card, used)
    await signer.desk.answers.undo(card.id, "person", signer.sign("undone", card))
    with pytest.raises(Denied, match="used before"):
        await signer.approve(card, used)
    late = signer.sign("approved", card)
    signer.safe.clock.pass_by(minutes=6)
    stranger = Signer(signer.safe)
    broken = signer.sign("approved", card)
    nonce = signer.nonce()
    said = Said(word="approved", about=((card.id, card.digest),))
    device = signer.device
    lies: dict[str, Signed] = {
        "used before": used,
        "too long": late,
        "it was asked for elsewhere": signer.sign(
            "approved", card, nonce=signer.nonce("another session")
        ),
        "for another request": signer.sign("approved", other),
        "for another answer": signer.sign("rejected", card),
        "for signing in": signer.signed(webauthn.SIGN_IN, nonce),
        "another port": signer.sign("approved", card, origin="http://localhost:8643"),
        "another origin": signer.sign("approved", card, origin="https://localhost:8642"),
        "in a frame": signer.sign("approved", card, crossOrigin=True),
        "in another's frame": signer.sign(
            "approved", card, topOrigin="https://evil.example"
        ),
        "as a new key": signer.sign("approved", card, type="webauthn.create"),
        "this desk does not know": stranger.sign("approved", card),
        "no JSON": Signed(
            broken.assertion.model_copy(update={"client_data": "!"}), ORIGIN, SESSION
        ),
        "no object": Signed(
            broken.assertion.model_copy(update={"client_data": webauthn.encode(b"[1]")}),
            ORIGIN,
            SESSION,
        ),
        "not base64": Signed(
            broken.assertion.model_copy(update={"signature": "a"}), ORIGIN, SESSION
        ),
        "no data": Signed(
            broken.assertion.model_copy(update={"authenticator_data": ""}), ORIGIN, SESSION
        ),
        "odd nonce": Signed(
            broken.assertion.model_copy(update={"nonce": "é"}), ORIGIN, SESSION
        ),
        "wrong signature": Signed(
            broken.assertion.model_copy(update={"signature": late.assertion.signature}),
            ORIGIN,
            SESSION,
        ),
    }
    for flags in (0x00, 0x01, 0x04):
        device.flags = flags
        lies[f"flags {flags}"] = signer.sign("approved", card)
    device.flags = 0x05
    device.origin = "http://evil.example:8642"
    lies["another host"] = signer.signed(said, signer.nonce(), origin=ORIGIN)
    device.origin = ORIGIN
    before = device.count
    for name, lie in lies.items():
        try:
            await signer.approve(card, lie)
        except Denied:
            continue
        pytest.fail(name)
    await signer.approve(card)
    device.count = 1
    with pytest.raises(Denied, match="counter went back"):
        await signer.desk.answers.reject(
            other.id, other.digest, None, "person", signer.sign("rejected", other)
        )
    await signer.desk.answers.undo(card.id, "person", Typed(PASSWORD, "here"))
    device.count = before + 100
    standing = signer.sign("approved", card)
    await signer.approve(card, standing)
    await signer.desk.store.write(
        passkeys.revoke, signer.desk.policy.seal, "my phone", signer.desk.now()
    )
    with pytest.raises(Denied, match="revoked"):
        await signer.desk.answers.reject(
            other.id, other.digest, None, "person", signer.sign("rejected", other)
        )
    # What it signed and has not left yet does not leave any more; that it was signed stays true.
    assert await signer.safe.settle() == 0
    assert isinstance(await signer.check(), Genuine)


@requirement("passkey:refused")
@pytest.mark.parametrize("kind", ["ed25519", "rsa", "synced"])
async def test_the_usual_kinds_of_keys_sign_and_one_that_is_synced_never_counts(
    home: Home, kind: str
) -> None:
    keys: dict[str, Callable[[], PrivateKey]] = {
        "ed25519": ed25519.Ed25519PrivateKey.generate,
        "rsa": lambda: rsa.generate_private_key(65537, 2048),
        "synced": lambda: ec.generate_private_key(ec.SECP256R1()),
    }
    async with opened(home) as safe:
        signer = Signer(safe)
        signer.device = Authenticator(key=keys[kind](), counts=kind != "synced")
        await signer.enrol()
        card = await safe.ask()
        await signer.approve(card)
        await signer.desk.answers.undo(card.id, "person", signer.sign("undone", card))
        assert await signer.check() == Genuine(2)


@requirement("passkey:refused")
async def test_a_key_that_is_none_is_not_enrolled(signer: Signer) -> None:
    unknown = x25519.X25519PrivateKey.generate().public_key()
    from cryptography.hazmat.primitives import serialization

    form = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    signer.device = Authenticator()
    with pytest.raises(Denied, match="kind of key"):
        await signer.enrol("x", public_key=webauthn.encode(unknown.public_bytes(*form)))
    with pytest.raises(Denied, match="cannot be read"):
        await signer.enrol("x", public_key=webauthn.encode(b"no key"))
    with pytest.raises(Denied, match="another key"):
        await signer.enrol("x", id=webauthn.encode(b"another"))
    for name in ("", "a" * 61, "two\nlines"):
        with pytest.raises(InvalidInput, match="needs a name"):
            await signer.enrol(name)
    with pytest.raises(InvalidInput, match="there is, or was"):
        await signer.enrol("my phone")
    with pytest.raises(NotFound):
        await signer.desk.store.write(
            passkeys.revoke, signer.desk.policy.seal, "nobody's", signer.desk.now()
        )


FLIPS = {
    "text": "UPDATE requests SET action = REPLACE(action, 'see you at ten', 'see you at six')",
    "digest": "UPDATE answers SET digest = '1' || substr(digest, 2)",
    "word": "UPDATE answers SET word = 'approved'",
    "who": "UPDATE answers SET said_by = 'nobody'",
    "assertion": 'UPDATE answers SET assertion = REPLACE(assertion, \'"nonce":"1\', \'"nonce":"2\')',
    "evidence": "UPDATE answers SET evidence = NULL",
    "key": "UPDATE passkeys SET public_key = substr(public_key, 1, length(public_key) - 2) || 'AA'",
    "counter": "UPDATE passkeys SET sign_count = 0",
    "row": "DELETE FROM answers",
    "passkey": "DELETE FROM passkeys",
}


def copy_tables(tx: Transaction) -> dict[str, list[Any]]:
    return {
        name: tx.all(f"SELECT * FROM {name}")
        for name in ("requests", "answers", "passkeys")
    }


@requirement("passkey:found")
async def test_one_changed_bit_sends_nothing_and_is_found(signer: Signer) -> None:
    for number, (name, sql) in enumerate(FLIPS.items()):
        card = await signer.safe.ask(subject=f"Number {number}")
        await signer.approve(card)
        kept = await signer.desk.store.read(copy_tables)
        await signer.change(sql)
        assert isinstance(await signer.check(), Forged), name
        assert await signer.safe.settle() == 0, name

        def put_back(tx: Transaction, kept: dict[str, list[Any]] = kept) -> None:
            for table, rows in kept.items():
                tx.execute(f"DELETE FROM {table}")
                for row in rows:
                    tx.execute(
                        f"INSERT INTO {table} VALUES ({', '.join('?' for _ in row)})", *row
                    )
            tx.execute("UPDATE requests SET state = 'withdrawn' WHERE state = 'held'")

        await signer.desk.store.write(put_back)
        assert isinstance(await signer.check(), Genuine), name


class PutBack(Exception):
    """Ends a transaction of which nothing is to stay."""


def flip_bits(value: Any, every: int) -> Iterator[Any]:
    """The value with one bit changed, in every so many of its places."""
    if not isinstance(value, str):
        yield from ((value or 0) ^ 1 << bit for bit in range(0, 40, 7))
        return
    kept = value.encode()
    for place in range(0, 8 * len(kept), every):
        changed = bytearray(kept)
        changed[place // 8] ^= 1 << place % 8
        with suppress(UnicodeDecodeError):
            yield changed.decode()


@requirement("passkey:found")
async def test_a_bit_of_any_column_is_found(signer: Signer) -> None:
    """Each column of the answer and of the key, and the text and digest of the request."""
    await signer.approve(await signer.safe.ask())
    desk = signer.desk
    tables = await desk.store.read(copy_columns)
    missed: list[tuple[str, str, Any]] = []
    flips = [
        (table, column, changed)
        for table, columns in tables.items()
        for column, value in columns.items()
        for changed in flip_bits(value, 13)
    ]

    def check(tx: Transaction, table: str, column: str, changed: Any) -> None:
        tx.execute(f"UPDATE {table} SET {column} = ?", changed)
        if not isinstance(check_answers(tx, desk.policy), Forged):
            missed.append((table, column, changed))
        raise PutBack

    for table, column, changed in flips:
        with pytest.raises(PutBack):
            await desk.store.write(check, table, column, changed)
    assert len(flips) > 500
    assert missed == []
    assert await signer.check() == Genuine(1)


def copy_columns(tx: Transaction) -> dict[str, dict[str, Any]]:
    """What has to be as it was written; of a key when it was used last is told to the person and nothing more."""
    answer = [*WrittenAnswer._fields, "evidence"]
    key = ["id", "name", "host", "public_key", "sign_count", "created", "revoked", "seal"]
    wanted = {"answers": answer, "passkeys": key, "requests": ["action", "digest"]}
    return {
        table: dict(
            zip(names, tx.all(f"SELECT {', '.join(names)} FROM {table}")[0], strict=True)
        )
        for table, names in wanted.items()
    }


@requirement("passkey:found")
async def test_a_row_made_from_another_answers_parts_counts_for_nothing(
    signer: Signer,
) -> None:
    """Whoever has the database but not the key can copy rows, and say that they are something else."""
    first, second = await signer.safe.ask(), await signer.safe.ask(subject="Another one")
    await signer.approve(first)
    copied = (
        "INSERT INTO answers SELECT ?, revision, word, ?, proof, said_by, at, words, number, evidence, assertion"
        " FROM answers WHERE request_id = ?"
    )
    await signer.change(copied, second.id, second.digest, first.id)
    await signer.change(
        "UPDATE requests SET state = 'approved', due = 1 WHERE id = ?", second.id
    )
    assert await signer.safe.settle() == 1
    assert (await signer.safe.card(second)).state == "waiting"

    # With the key, but without the authenticator, nothing can be made that was not signed.
    policy = signer.desk.policy
    rows = await signer.desk.store.read(
        lambda tx: tx.all("SELECT * FROM answers WHERE request_id = ?", first.id)
    )
    *facts, _evidence, assertion = rows[0]
    mine = WrittenAnswer._make([*facts, assertion])
    forged = {
        "another text": mine._replace(digest=second.digest),
        "another answer": mine._replace(word="undone"),
        "not one of this desk": mine._replace(
            assertion=(assertion or "").replace(webauthn.encode(signer.device.id), "x")
        ),
        "something else": mine._replace(
            assertion=(assertion or "").replace('"nonce":"1', '"nonce":"2')
        ),
    }
    for why, written in forged.items():
        flaw = await signer.desk.store.read(
            policy.find_flaw, KeptAnswer(written, policy.evidence(written))
        )
        assert why in (flaw or ""), flaw


@requirement("passkey:found")
async def test_with_page_as_the_least_a_signature_is_checked_all_the_same(
    home: Home,
) -> None:
    async with opened(home, DESKHAND_PROOF="page") as safe:
        signer = Signer(safe)
        await signer.enrol()
        card = await safe.ask()
        await signer.approve(card)
        await signer.change(
            'UPDATE answers SET assertion = REPLACE(assertion, \'"nonce":"1\', \'"nonce":"2\')'
        )
        assert await safe.settle() == 0


@requirement("passkey:revived")
async def test_an_old_yes_does_not_come_back_and_nothing_that_left_leaves_again(
    signer: Signer,
) -> None:
    """Somebody who can write to the database, but not the record's chain."""
    card = await signer.safe.ask()
    await signer.approve(card)
    await signer.desk.answers.undo(card.id, "person", signer.sign("undone", card))
    await signer.change("DELETE FROM answers WHERE word = 'undone'")
    revived = "UPDATE requests SET state = 'approved', due = 1, token = NULL WHERE id = ?"
    await signer.change(revived, card.id)
    assert await signer.safe.settle() == 0
    told = await signer.check()
    assert isinstance(told, Forged)
    assert "is no more" in told.why

    sent = await signer.safe.ask(subject="Once")
    await signer.approve(sent)
    assert await signer.safe.settle() == 1
    for state in ("approved", "sending"):
        await signer.change("DELETE FROM sends")
        await signer.change(
            f"UPDATE requests SET state = '{state}', due = 1, lease = 1, token = NULL WHERE id = ?",
            sent.id,
        )
        assert await signer.safe.settle() == 1

    # Nor where the record was cut to fit: its chain, or what is noted beside the database, says so.
    cut = await signer.safe.ask(subject="Cut")
    said = await signer.desk.answers.make_said("approved", [(cut.id, cut.digest)])
    await signer.approve(cut, signer.signed(said, signer.nonce()))
    await signer.desk.answers.undo(cut.id, "person", signer.sign("undone", cut))
    await signer.change(
        "DELETE FROM answers WHERE word = 'undone' AND request_id = ?", cut.id
    )
    await signer.change(
        "UPDATE audit SET entry = REPLACE(entry, '\"undone\"', '\"snoozed\"')"
    )
    await signer.change(revived, cut.id)
    assert await signer.safe.settle() == 1
    await signer.change("DELETE FROM audit_days")
    await signer.change(revived, cut.id)
    assert await signer.safe.settle() == 1


@requirement("passkey:revived")
async def test_a_record_that_was_cut_before_the_undo_revives_nothing(
    signer: Signer,
) -> None:
    """Its chain is whole; only what is noted beside the database knows that there was more."""
    card = await signer.safe.ask()
    await signer.approve(card)
    head = await signer.desk.store.read(audit.head)
    await signer.desk.answers.undo(card.id, "person", signer.sign("undone", card))
    await signer.change("DELETE FROM answers WHERE word = 'undone'")
    await signer.change("DELETE FROM audit WHERE seq > ?", head.seq)
    await signer.change("UPDATE audit_head SET seq = ?, hash = ?", *head)
    await signer.change(
        "UPDATE requests SET state = 'approved', due = 1 WHERE id = ?", card.id
    )
    assert await signer.safe.settle() == 0


@requirement("guarded:moved")
async def test_what_was_answered_before_the_desk_had_its_key_is_counted_and_not_called_forged(
    signer: Signer,
) -> None:
    old, new = [await signer.safe.ask(subject=subject) for subject in ("Old", "New")]
    await signer.approve(old)
    await signer.change("UPDATE answers SET evidence = 'of another key'")
    assert isinstance(await signer.check(), Forged)
    signer.safe.clock.time += timedelta(seconds=1)
    signer.desk.begin_new_key()
    del signer.desk.policy
    assert await signer.check() == Genuine(0, unchecked=1)
    await signer.approve(new)
    assert await signer.check() == Genuine(1, unchecked=1)
    await signer.change("UPDATE answers SET evidence = 'of another key'")
    assert isinstance(await signer.check(), Forged)


@requirement("passkey:codes")
async def test_a_recovery_code_counts_once_and_new_ones_end_the_old(signer: Signer) -> None:
    store, seal, now = signer.desk.store, signer.desk.policy.seal, signer.desk.now()
    old = await store.write(passkeys.replace_codes, seal, now)
    codes = await store.write(passkeys.replace_codes, seal, now)
    assert len(set(codes)) == await store.read(passkeys.count_codes) == passkeys.CODES
    assert not await store.write(passkeys.use_code, seal, old[0])
    assert await store.write(passkeys.use_code, seal, f" {codes[0].upper()} ")
    assert not await store.write(passkeys.use_code, seal, codes[0])
    kept = await store.read(lambda tx: str(tx.all("SELECT * FROM recovery_codes")))
    assert not any(code in kept for code in codes)
    await store.write(passkeys.forget_all)
    assert not await store.write(passkeys.use_code, seal, codes[1])
    assert await store.read(passkeys.list_keys, seal) == []


@requirement("passkey:revived")
async def test_a_password_that_somebody_else_put_into_the_database_is_none(
    signer: Signer,
) -> None:
    """The desk of the fixture has one of an earlier version, which goes on working and is sealed at the next start."""
    safe = signer.safe
    card = await safe.ask()
    await safe.desk.answers.approve(card.id, card.digest, "person", Typed(PASSWORD, "here"))
    safe.desk.adopt_secrets()
    await safe.desk.answers.undo(card.id, "person", Typed(PASSWORD, "here"))
    safe.desk.adopt_secrets()
    theirs = passwords.hash_password("the password of another")
    for forged in (theirs, f"{theirs}:{'0' * 64}"):
        await safe.desk.store.write(passwords.keep, forged)
        claim = Typed("the password of another", "here")
        with pytest.raises(Denied, match="not set by this desk"):
            await safe.desk.answers.approve(card.id, card.digest, "person", claim)
    await safe.desk.store.write(
        passwords.keep, safe.desk.seal_password(passwords.hash_password("my own new one"))
    )
    await safe.desk.answers.approve(
        card.id, card.digest, "person", Typed("my own new one", "here")
    )
    await safe.desk.store.write(passwords.remove)
    await safe.desk.store.write(passwords.adopt, safe.desk.policy.seal)


@requirement("passkey:signed")
async def test_a_desk_that_comes_home_with_another_key_takes_its_passkeys_over_once(
    signer: Signer,
) -> None:
    await signer.desk.store.write(
        passwords.keep, signer.desk.seal_password(passwords.hash_password(PASSWORD))
    )
    home = signer.desk.settings.home
    (home / "proof.key").write_text("another key of another home")
    assert await signer.check() != Genuine(0)
    (home / "password.sealed").unlink()
    signer.desk.adopt_secrets()
    assert await signer.check() == Genuine(0)
    card = await signer.safe.ask()
    await signer.approve(card)
    await signer.desk.answers.undo(card.id, "person", Typed(PASSWORD, "here"))


@requirement("passkey:revived")
async def test_what_else_the_record_says_of_a_request_keeps_no_yes_back(
    signer: Signer,
) -> None:
    card = await signer.safe.ask()
    await signer.approve(card)
    seen = {"action_id": card.id}
    await signer.desk.record("email_mcp", "get_action", card.id, seen, None, 0)
    await signer.desk.record("person", "undone", "page", {"beside": card.id}, None, 0)
    await signer.desk.record(
        "person", "permitted", card.id, seen | {"digest": card.digest}, None, 0
    )
    assert await signer.safe.settle() == 1


@requirement("passkey:revived")
async def test_on_postgresql_a_signature_counts_once_as_well(
    home: Home, postgresql: str
) -> None:
    with psycopg.connect(postgresql, autocommit=True) as connection:
        connection.execute("CREATE DATABASE passkeys")
    async with opened(
        home, DESKHAND_DATABASE_URL=postgresql.replace("/postgres?", "/passkeys?")
    ) as safe:
        signer = Signer(safe)
        await signer.enrol()
        card = await safe.ask()
        used = signer.sign("approved", card)
        await signer.approve(card, used)
        with pytest.raises(Denied, match="used before"):
            await signer.desk.answers.undo(
                card.id, "person", signer.sign("undone", card, nonce=used.assertion.nonce)
            )
        assert await safe.settle() == 1
        await signer.change("DELETE FROM sends")
        await signer.change(
            "UPDATE requests SET state = 'approved', due = 1, token = NULL WHERE id = ?",
            card.id,
        )
        assert await safe.settle() == 1
        assert await signer.check() == Genuine(1)


@requirement("passkey:refused")
async def test_a_list_with_one_card_that_changed_meanwhile_approves_none(
    signer: Signer,
) -> None:
    await signer.approve(await signer.safe.ask())
    await signer.safe.settle()
    answers = signer.desk.answers
    first, second = [
        await signer.safe.ask(subject=f"Number {number}") for number in range(2)
    ]
    signed = signer.sign("approved", first, second)
    letter = Letter(HELLO["to"], "Other words", "At nine.\n")
    said = await answers.make_said("edited", [(second.id, second.digest)], letter)
    changed = await answers.edit(
        second.id, second.digest, letter, "person", signer.signed(said, signer.nonce())
    )
    with pytest.raises(Denied, match="no longer what was shown"):
        await answers.approve_all(
            [(each.id, each.digest) for each in (first, second)], "person", signed
        )
    for listed in (
        [(first.id, first.digest), (second.id, changed.digest)],
        [(first.id, first.digest)],
    ):
        with pytest.raises(Denied, match="does not count"):
            await answers.approve_all(listed, "person", signed)
    other = Letter(HELLO["to"], "Other words", "At ten.\n")
    said = await answers.make_said("approved", [(first.id, first.digest)], letter)
    with pytest.raises(Denied, match="something else"):
        await answers.approve_edited(
            first.id, first.digest, other, "person", signer.signed(said, signer.nonce())
        )
    assert await signer.safe.settle() == 1
    assert {(await signer.safe.card(each)).state for each in (first, second)} == {"waiting"}


@requirement("passkey:found")
async def test_a_signed_reply_to_a_question_that_is_gone_is_found(signer: Signer) -> None:
    asked = Question(text="Shall I?", asker="me")
    outcome = await signer.desk.gate.propose(asked, "desk_mcp")
    assert isinstance(outcome, NotApproved)
    card = await signer.desk.waiting.card(outcome.waits or "")
    claim = signer.sign("responded", card, words="Yes, do.")
    await signer.desk.answers.respond(card.id, card.digest, "Yes, do.", "person", claim)
    assert await signer.check() == Genuine(1)
    await signer.change("UPDATE answers SET words = 'No.'")
    assert isinstance(await signer.check(), Forged)
    await signer.change("DELETE FROM answers")
    assert isinstance(await signer.check(), Forged)
