"""Two at one desk in the same moment: what the first one did counts, and the second one is told."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from deskhand.errors import Changed, Denied
from deskhand.gate import ledger, passwords
from deskhand.gate.claims import Typed
from deskhand.gate.folders import Folders, RequestFile
from deskhand.gate.letters import Letter
from deskhand.gate.requests import Folder, Request
from tests.gate.pair import Pair, pair
from tests.gate.site import HELLO, Interrupted, Site
from tests.gate.test_corners import elsewhere
from tests.gate.waiting import drafted
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

SENT = "Email sent successfully."
PASSWORD = Typed("a password for tests", "here")


async def asked(two: Pair) -> Request:
    assert (await two.send()).startswith("Rejected:")
    return await two.open_row()


async def state(two: Pair, request: Request) -> str:
    return (await two.other.waiting.card(request.id)).state


@requirement("gate:expires")
async def test_who_sees_second_that_a_request_expired_says_the_same(site: Site) -> None:
    async with pair(site) as two:
        row = await asked(two)
        site.clock.pass_by(days=8)
        two.between.before.append(partial(two.other.gate.find, row.id))
        assert (await two.ours.gate.find(row.id)).state == "expired"


@requirement("cards:told")
async def test_of_two_calls_long_after_the_send_one_is_told_and_the_other_asks_anew(
    site: Site,
) -> None:
    async with pair(site, DESKHAND_HOLD_SECONDS="0") as two:
        row = await asked(two)
        await two.other.answers.approve(row.id, row.digest, "person")
        site.clock.pass_by(minutes=11)
        two.between.before.append(two.other_sends)
        assert (await two.send()).startswith("Rejected:")
        assert "Exactly this mail was sent before" in site.pending().read_text()
    assert len(site.sent) == 1


@requirement("cards:digest")
async def test_the_second_of_two_answers_changes_nothing_and_says_so(site: Site) -> None:
    async with pair(site) as two:
        row = await asked(two)
        yes = partial(two.other.answers.approve, row.id, row.digest, "person")
        for answer in (
            partial(two.ours.answers.approve, row.id, row.digest, "person"),
            partial(two.ours.answers.reject, row.id, row.digest, "no", "person"),
        ):
            two.between.before.append(yes)
            with pytest.raises(
                Changed, match=r"changed in this moment|no longer what was shown"
            ):
                await answer()
            assert await state(two, row) == "held"
            await two.other.answers.undo(row.id, "person")


@requirement("cards:digest")
async def test_who_takes_a_yes_back_second_is_told_that_it_is_too_late(site: Site) -> None:
    async with pair(site) as two:
        row = await asked(two)
        await two.other.answers.approve(row.id, row.digest, "person")
        two.between.before.append(partial(two.other.answers.undo, row.id, "person"))
        with pytest.raises(Denied, match="can no longer be taken back"):
            await two.ours.answers.undo(row.id, "person")
        assert await state(two, row) == "waiting"


@requirement("cards:edited")
async def test_two_who_edit_a_text_in_the_same_words_agree(site: Site) -> None:
    async with pair(site) as two:
        row = await asked(two)
        words = Letter(**HELLO | {"body": "At eight.\n"})
        two.between.before.append(
            partial(two.other.answers.edit, row.id, row.digest, words, "person")
        )
        card = await two.ours.answers.edit(row.id, row.digest, words, "person")
        assert (card.revision, card.body) == (2, "At eight.\n")


@requirement("gate:withdrawn")
async def test_a_no_that_comes_while_the_mail_is_leaving_is_told_that_it_is_too_late(
    site: Site,
) -> None:
    leaving = asyncio.Event()
    answered = asyncio.Event()

    async def leave() -> None:
        leaving.set()
        await answered.wait()

    async with pair(site) as two, asyncio.TaskGroup() as others:
        row = await asked(two)
        await two.other.answers.approve_now(row.id, row.digest, "person")
        two.other.mailbox = Interrupted(two.other.mailbox, leave)

        async def begin() -> None:
            others.create_task(two.other.gate.release(row.id, "desk"))
            await leaving.wait()

        two.between.before.append(begin)
        for _ in range(2):
            with pytest.raises(Denied, match="can no longer be taken back"):
                await two.ours.answers.reject(row.id, row.digest, None, "person")
        answered.set()
    assert len(site.sent) == 1


@requirement("gate:takeover")
async def test_who_is_taken_over_at_the_point_of_no_return_does_not_send(
    site: Site,
) -> None:
    async with pair(site) as two:
        await asked(two)
        site.approve()

        async def take_over() -> None:
            site.clock.pass_by(minutes=10)
            await two.other_sends()

        two.between.before.extend(
            [None, None, take_over]
        )  # heard, claimed, and then the token
        assert "another process is sending this mail right now" in await two.send()
    assert len(site.sent) == 1


@requirement("gate:rejected")
async def test_a_no_that_comes_while_an_edited_file_is_read_stays_a_no(site: Site) -> None:
    async with pair(site) as two:
        row = await asked(two)
        file = site.approve()
        file.write_text(file.read_text().replace("at ten", "at nine"))
        away = elsewhere(site)
        two.between.before.append(
            partial(away.answers.reject, row.id, row.digest, "no", "person")
        )
        found = await two.ours.gate.find(row.id)
        assert (found.state, found.revision) == ("rejected", 1)
        away.close()


@requirement("gate:rejected")
async def test_a_no_that_comes_while_a_file_in_done_is_wondered_at_stays_a_no(
    site: Site,
) -> None:
    async with pair(site) as two:
        row = await asked(two)
        left = (
            site.pending().read_text().replace("status: pending_approval", "status: done")
        )
        done = site.home.vault / "Done"
        done.mkdir(exist_ok=True)
        (done / row.file).write_text(left)
        away = elsewhere(site)
        two.between.before.append(
            partial(away.answers.reject, row.id, row.digest, "no", "person")
        )
        found = await two.ours.gate.find(row.id)
        assert (found.state, found.revision) == ("rejected", 1)
        away.close()


@requirement("proof:stored")
async def test_a_no_with_a_password_in_the_moment_of_the_claim_keeps_the_mail_here(
    site: Site,
) -> None:
    async with pair(site, DESKHAND_PROOF="passkey") as two:
        await two.other.store.write(
            passwords.keep, passwords.hash_password(PASSWORD.password)
        )
        row = await asked(two)
        await two.other.answers.approve_now(row.id, row.digest, "person", PASSWORD)
        no = partial(two.other.answers.reject, row.id, row.digest, None, "person", PASSWORD)
        two.between.before.append(no)
        assert "nobody approved exactly this text" in await two.send()
        assert await state(two, row) == "rejected"
    assert site.sent == []


@requirement("cards:hold")
@requirement("gate:withdrawn")
async def test_a_file_that_is_moved_to_rejected_in_the_moment_the_rest_ends_is_a_no(
    site: Site,
) -> None:
    async with pair(site) as two:
        row = await asked(two)
        await two.ours.answers.approve(row.id, row.digest, "person")
        site.clock.pass_by(seconds=10)

        async def reject() -> None:
            site.reject()

        two.between.after.extend([None, reject])
        await two.ours.gate.release_due()
        assert await state(two, row) == "rejected"
    assert site.sent == []


@requirement("cards:hold")
@requirement("cards:digest")
async def test_a_draft_that_is_edited_in_the_moment_the_rest_ends_waits_again(
    site: Site,
) -> None:
    async with pair(site) as two:
        row = drafted("draft-0123456789abcdef", "ann@example.org", site.clock())
        await two.other.store.write(ledger.insert, row)
        await two.other.door.follow(row)
        await two.ours.answers.approve(row.id, row.digest, "person")
        site.clock.pass_by(seconds=10)

        async def edit() -> None:
            (file,) = site.files("Drafts")
            file.write_text(file.read_text().replace("y\n", "At nine.\n"))

        two.between.after.extend([None, edit])
        await two.ours.gate.release_due()
        assert await state(two, row) == "waiting"
    assert site.sent == []


class Touched:
    """The real folders; once a file has been moved in them, the person writes into it."""

    def __init__(self, inner: Folders, root: Path) -> None:
        self._inner = inner
        self._root = root

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def move(
        self, found: RequestFile, folder: Folder, name: str | None = None
    ) -> RequestFile:
        moved = self._inner.move(found, folder, name)
        (self._root / moved.path).write_text(found.text.replace("at ten", "at nine"))
        return moved


@requirement("cards:hold")
@requirement("gate:content-bound")
async def test_what_is_written_into_a_file_while_it_is_put_into_approved_does_not_stay_there(
    site: Site,
) -> None:
    async with pair(site) as two:
        row = await asked(two)
        await two.ours.answers.approve(row.id, row.digest, "person")
        two.ours.door.folders = Touched(two.ours.door.folders, site.home.vault)
        await two.ours.gate.end_hold(await two.ours.gate.find(row.id))
        assert "at nine" in site.pending().read_text()
        assert site.files("Approved") == []


@requirement("cards:waiting")
async def test_a_draft_that_two_find_at_once_is_one_card(site: Site) -> None:
    async with pair(site) as two:
        heading = "type: email_draft\nto: ann@example.org\nsubject: hi\ndraft_id: draft-own"
        file = site.home.vault / "Drafts" / "own.md"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"---\n{heading}\n---\nHello.\n")
        two.between.before.append(two.other.door.hear_all)
        await two.ours.door.hear_all()
        assert (await two.open_row()).id == "draft-own"


@requirement("gate:hand-written")
async def test_a_hand_written_yes_that_is_changed_in_that_moment_releases_nothing(
    site: Site,
) -> None:
    async with pair(site) as two:
        file = site.write()

        async def change() -> None:
            file.write_text(file.read_text().replace("ann@", "eve@"))

        two.between.before.append(change)
        assert (await two.send()).startswith("Rejected:")
    assert site.sent == []


@requirement("gate:once")
async def test_a_file_that_an_earlier_version_put_aside_is_brought_back_by_one(
    site: Site,
) -> None:
    aside = site.home.vault / "Approved" / ".sending"
    aside.mkdir(parents=True)
    async with pair(site, DESKHAND_HOLD_SECONDS="0") as two:
        row = await asked(two)
        await two.ours.answers.approve(row.id, row.digest, "person")
        (done,) = site.files("Done")
        done.rename(aside / f"{row.send_id} {done.name}")
        (aside / "0123456789abcdef stray.md").write_text("What is this?\n")
    async with pair(site) as two:
        two.between.after_reads.append(two.other.door.return_claimed)
        await two.ours.door.return_claimed()
    assert [file.name for file in site.files("Done")] == [done.name]
    assert [file.name for file in site.files("Approved")] == ["stray.md"]
