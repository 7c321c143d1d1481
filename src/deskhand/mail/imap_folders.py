"""Which folder of an IMAP account is which: what the server declares, else what folders are usually called.

A server that declares nothing (RFC 6154) leaves it to names, and these are in the language of whoever made the folders.
"""

import unicodedata
from collections.abc import Sequence
from typing import Literal, NamedTuple

Role = Literal["inbox", "sent", "drafts", "junk", "trash"]


class SpecialFolder(NamedTuple):
    label: str
    """By which a mail says that it lies there."""
    use: bytes
    """The special use, in lower case."""
    made: str
    """The folder that is made where there is none."""
    names: tuple[str, ...]
    """That it often has, at any depth."""


ROLES: dict[Role, SpecialFolder] = {
    "inbox": SpecialFolder("INBOX", b"\\inbox", "INBOX", ("inbox",)),
    "sent": SpecialFolder(
        "SENT", b"\\sent", "Sent", ("sent", "sent items", "sent mail", "sent messages")
    ),
    "drafts": SpecialFolder("DRAFT", b"\\drafts", "Drafts", ("drafts", "draft")),
    "junk": SpecialFolder(
        "SPAM", b"\\junk", "Junk", ("junk", "spam", "junk e-mail", "bulk mail")
    ),
    "trash": SpecialFolder(
        "TRASH", b"\\trash", "Trash", ("trash", "bin", "deleted items", "deleted messages")
    ),
}

ARCHIVE = "Archive"
_ARCHIVE_USE = b"\\archive"

_IN_OTHER_LANGUAGES: dict[Role | Literal["archive"], str] = {
    "sent": """
        gesendet; gesendete elemente; gesendete objekte; gesendete nachrichten
        envoyés; messages envoyés; éléments envoyés; objets envoyés; courrier envoyé
        inviata; inviati; posta inviata; messaggi inviati; elementi inviati
        enviados; enviadas; elementos enviados; mensajes enviados; correo enviado; itens enviados; mensagens enviadas
        enviats; elements enviats; verzonden; verzonden items; verzonden berichten
        skickat; skickade; skickade objekt; sendt; sendt post; sendte elementer; lähetetyt; lähetetyt kohteet
        wysłane; elementy wysłane; odeslané; odeslaná pošta; odoslané; odoslaná pošta
        elküldött; elküldött elemek; elküldött üzenetek; trimise; elemente trimise; mesaje trimise
        gönderilmiş; gönderilenler; gönderilmiş öğeler; gönderilmiş postalar
        отправленные; надіслані; απεσταλμένα
        送信済み; 送信済みアイテム; 送信済みメール; 已发送; 已发送邮件; 寄件備份; 보낸편지함; 보낸 편지함""",
    "drafts": """
        entwürfe; entwurf; brouillons; brouillon; bozze; borradores; rascunhos; esborranys; concepten
        utkast; kladder; luonnokset; wersje robocze; robocze; szkice; koncepty; rozepsané; rozpísané
        piszkozatok; ciorne; taslaklar; черновики; чернетки; πρόχειρα
        下書き; 草稿; 草稿箱; 草稿夹; 임시보관함""",
    "junk": """
        spamverdacht; junk-e-mail; unerwünscht; unerwünschte werbung; indésirables; courrier indésirable; pourriel
        posta indesiderata; indesiderata; correo no deseado; correo basura; lixo eletrônico; lixo eletrónico
        correu brossa; ongewenst; ongewenste e-mail; ongewenste reclame
        skräppost; uønsket mail; uønsket e-post; søppelpost; roskaposti
        wiadomości-śmieci; niechciane; nevyžádaná pošta; nevyžádané; nevyžiadaná pošta; levélszemét
        önemsiz; önemsiz e-posta; gereksiz; спам; нежелательная почта; небажана пошта
        ανεπιθύμητα; ανεπιθύμητη αλληλογραφία
        迷惑メール; 垃圾邮件; 垃圾郵件; 스팸; 스팸편지함; 스팸메일함""",
    "trash": """
        papierkorb; gelöscht; gelöschte elemente; gelöschte objekte; corbeille; éléments supprimés; messages supprimés
        cestino; posta eliminata; elementi eliminati; papelera; papelera de reciclaje; elementos eliminados
        lixeira; itens excluídos; itens eliminados; reciclagem; paperera; prullenbak; prullenmand; verwijderde items
        papperskorg; papperskorgen; borttaget; borttagna objekt; papirkurv; slettet post; slettede elementer
        roskakori; poistetut; poistetut kohteet; kosz; elementy usunięte; koš; odstraněná pošta; kôš; odstránené
        kuka; lomtár; törölt elemek; coș de gunoi; elemente șterse; çöp; çöp kutusu; silinmiş öğeler
        корзина; удаленные; удалённые; кошик; видалені; κάδος; κάδος απορριμμάτων; διαγραμμένα
        ゴミ箱; ごみ箱; 削除済みアイテム; 已删除; 已删除邮件; 废纸篓; 垃圾桶; 휴지통; 지운편지함""",
    "archive": """
        archiv; archives; archivio; archivo; archivados; arxiu; arquivo; archief; arkiv; arkisto; archiwum; archív
        archívum; arhivă; arşiv; архив; архів; αρχείο; アーカイブ; 归档; 存档; 封存; 보관함""",
}


def _fold(name: str) -> str:
    """A name as it compares: one program composes its accents, another does not."""
    return unicodedata.normalize("NFC", name).casefold()


_KNOWN = {
    _fold(name.strip()): role
    for role, names in _IN_OTHER_LANGUAGES.items()
    for name in names.replace("\n", ";").split(";")
    if name.strip()
}


def find_roles(listed: Sequence[tuple[set[bytes], str]]) -> list[Role | None]:
    """The role of each folder, given by its flags in lower case and its path with slashes.

    What the server declares counts; names are guessed only for a role that it declares for no folder, and those of
    another language than English only where no folder has it yet, and not in the depth of somebody's own folders.
    """
    declared = {flag for flags, _ in listed for flag in flags}
    found = [_find_role(flags, path, declared) for flags, path in listed]
    known = {*found}
    guesses = [_guess(path) for _, path in listed]
    for at, guess in enumerate(guesses):
        if found[at] is None and guess != "archive" and guess not in known:
            found[at] = guess
    return found


def find_archive(listed: Sequence[tuple[set[bytes], str]]) -> str:
    """The path of the folder that the server or the person keeps for what is done with."""
    for flags, path in listed:
        if _ARCHIVE_USE in flags:
            return path
    if ARCHIVE.casefold() in (path.casefold() for _, path in listed):
        return ARCHIVE
    return next((path for _, path in listed if _guess(path) == "archive"), ARCHIVE)


def _find_role(flags: set[bytes], path: str, declared: set[bytes]) -> Role | None:
    name = path.rpartition("/")[2]
    if name.upper() == "INBOX":
        return "inbox"
    for role, place in ROLES.items():
        if place.use in flags:
            return role
        if place.use not in declared and name.lower() in place.names:
            return role
    return None


def _guess(path: str) -> Role | Literal["archive"] | None:
    top = _fold(path).removeprefix("inbox/")
    return _KNOWN.get(top)
