"""What somebody brings with an answer, and what it proves."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from deskhand import audit
from deskhand.errors import Denied
from deskhand.gate import passkeys, passwords
from deskhand.gate.proofs import Policy, Proven
from deskhand.gate.record import GateCall
from deskhand.gate.requests import Proof
from deskhand.gate.webauthn import Assertion, KeptAssertion, Passkey, Said
from deskhand.store import Store, Transaction


@dataclass(frozen=True, slots=True)
class Typed:
    """The password as somebody typed it for one answer."""

    password: str
    source: str
    """Where it was typed: a session, or the terminal. Who guesses in one place keeps nobody out of another."""


@dataclass(frozen=True, slots=True)
class Signed:
    """A passkey's signature, on the page of this origin and in this session."""

    assertion: Assertion
    origin: str
    session: str


Claim = Proof | Typed | Signed | Proven
"""What somebody brings with an answer; what was looked at before is taken as it is."""


class Claims:
    def __init__(self, store: Store, policy: Policy, now: Callable[[], datetime]) -> None:
        self._store = store
        self._policy = policy
        self._now = now

    async def prove(self, by: str, claim: Claim, said: Said) -> Proven:
        """What the claim proves about these words. What proves nothing is on the record."""
        match claim:
            case Proven():
                return claim
            case Typed():
                await self._compare(by, claim)
                return Proven("password")
            case Signed():
                await self._accept(by, claim, said)
                return Proven(
                    "passkey", KeptAssertion(said=said, assertion=claim.assertion)
                )
            case proof:
                self._policy.demand(proof)
                return Proven(proof)

    async def _compare(self, by: str, claim: Typed) -> None:
        if not claim.password:  # no guess: who closes the input must not make others wait
            raise Denied(
                "no password was typed", reason="proof", hint="nothing was answered"
            )
        kept = await self._store.write(passwords.attempt_answer, claim.source, self._now())
        if kept is None:
            hint = "`deskhand password set` gives it one; of a guarded desk with sudo"
            raise Denied("this desk has no password yet", reason="proof", hint=hint)
        self._policy.demand_own_password(kept)
        if not await asyncio.to_thread(passwords.matches, claim.password, kept):
            place = "terminal" if claim.source.startswith("terminal") else "page"
            await self._record(by, place, "wrong password")
            raise Denied(
                "the password is wrong",
                reason="proof",
                hint="nothing was answered; type it again",
            )
        await self._store.write(passwords.forget_wrong_answers, claim.source)

    async def _accept(self, by: str, claim: Signed, said: Said) -> None:
        def work(tx: Transaction) -> Passkey:
            seal = self._policy.seal
            signed = claim.assertion
            return passkeys.accept(
                tx,
                seal,
                said,
                signed,
                origin=claim.origin,
                place=claim.session,
                now=self._now(),
            )

        try:
            await self._store.write(work)
        except Denied as error:
            await self._record(by, "page", error.message)
            raise

    async def _record(self, by: str, place: str, why: str) -> None:
        now = self._now()
        await self._store.write(
            audit.append, GateCall(by, "answer", place, now).entry("rejected", why, now)
        )
