"""A hundred mails as they come, and whom an answer to all of them goes to: (headers, To, Cc).

The person is me@example.com, also called ada@work.example, ada.lovelace@gmail.com and büro@müller.example.
"""

OWN = (
    "me@example.com",
    "ada@work.example",
    "ada.lovelace@gmail.com",
    "büro@xn--mller-kva.example",
)

LIST = "List-Post: <mailto:dev@lists.example>\nList-Id: <dev.lists.example>\n"

Thread = tuple[str, str, str]
THREADS: dict[str, Thread] = {
    "to me alone": ("From: Ann <ann@a.example>\nTo: me@example.com", "ann@a.example", ""),
    "to me and another": (
        "From: ann@a.example\nTo: me@example.com, bob@b.example",
        "ann@a.example",
        "bob@b.example",
    ),
    "with copies": (
        "From: ann@a.example\nTo: me@example.com\nCc: bob@b.example, Cy <cy@c.example>",
        "ann@a.example",
        "bob@b.example, cy@c.example",
    ),
    "I am a copy": (
        "From: ann@a.example\nTo: bob@b.example\nCc: me@example.com",
        "ann@a.example",
        "bob@b.example",
    ),
    "I am a blind copy": (
        "From: ann@a.example\nTo: bob@b.example",
        "ann@a.example",
        "bob@b.example",
    ),
    "I am named in both": (
        "From: ann@a.example\nTo: ME@Example.com\nCc: me@example.com, bob@b.example",
        "ann@a.example",
        "bob@b.example",
    ),
    "the sender is a copy too": (
        "From: ann@a.example\nTo: me@example.com\nCc: ANN@a.example, bob@b.example",
        "ann@a.example",
        "bob@b.example",
    ),
    "somebody twice": (
        "From: ann@a.example\nTo: bob@b.example, me@example.com\nCc: Bob <BOB@b.example>",
        "ann@a.example",
        "bob@b.example",
    ),
    "two senders": (
        "From: ann@a.example, bob@b.example\nSender: ann@a.example\nTo: me@example.com",
        "ann@a.example, bob@b.example",
        "",
    ),
    "I am one of two senders": (
        "From: me@example.com, bob@b.example\nTo: cy@c.example",
        "bob@b.example",
        "cy@c.example",
    ),
    "an alias of mine": (
        "From: ann@a.example\nTo: ada@work.example, bob@b.example",
        "ann@a.example",
        "bob@b.example",
    ),
    "an alias with a plus": (
        "From: shop@s.example\nTo: me+shop@example.com, bob@b.example",
        "shop@s.example",
        "bob@b.example",
    ),
    "Gmail counts no dots": (
        "From: ann@a.example\nTo: a.d.a.lovelace+x@googlemail.com\nCc: bob@gmail.com",
        "ann@a.example",
        "bob@gmail.com",
    ),
    "dots count elsewhere": (
        "From: ann@a.example\nTo: m.e@example.com, me@example.com",
        "ann@a.example",
        "m.e@example.com",
    ),
    "another plus is another": (
        "From: ann@a.example\nTo: me@example.com, bob+x@b.example, bob@b.example",
        "ann@a.example",
        "bob+x@b.example, bob@b.example",
    ),
    "an alias beyond ASCII": (
        "From: ann@a.example\nTo: büro@müller.example, bob@b.example",
        "ann@a.example",
        "bob@b.example",
    ),
    "a mail of my own": (
        "From: me@example.com\nTo: ann@a.example\nCc: bob@b.example",
        "ann@a.example",
        "bob@b.example",
    ),
    "by an alias of my own": (
        "From: Ada <ada@work.example>\nTo: ann@a.example, cy@c.example",
        "ann@a.example, cy@c.example",
        "",
    ),
    "my own with a copy to me": (
        "From: me@example.com\nTo: ann@a.example\nCc: me@example.com, bob@b.example",
        "ann@a.example",
        "bob@b.example",
    ),
    "my own to copies alone": (
        "From: me@example.com\nCc: ann@a.example, bob@b.example",
        "ann@a.example, bob@b.example",
        "",
    ),
    "Reply-To": (
        "From: ann@a.example\nReply-To: Office <office@a.example>\nTo: me@example.com, bob@b.example",
        "office@a.example",
        "bob@b.example",
    ),
    "Reply-To names several": (
        "From: ann@a.example\nReply-To: office@a.example, bob@b.example\nTo: me@example.com, bob@b.example",
        "office@a.example, bob@b.example",
        "",
    ),
    "Reply-To is the sender": (
        "From: ann@a.example\nReply-To: Ann <ann@a.example>\nTo: me@example.com",
        "ann@a.example",
        "",
    ),
    "Reply-To is me": (
        "From: ann@a.example\nReply-To: me@example.com\nTo: bob@b.example",
        "ann@a.example",
        "bob@b.example",
    ),
    "Reply-To is empty": (
        "From: ann@a.example\nReply-To: \nTo: me@example.com",
        "ann@a.example",
        "",
    ),
    "Reply-To is no address": (
        "From: ann@a.example\nReply-To: the office\nTo: me@example.com",
        "ann@a.example",
        "",
    ),
    "Reply-To twice": (
        "From: ann@a.example\nReply-To: x@a.example\nReply-To: y@a.example\nTo: me@example.com",
        "x@a.example, y@a.example",
        "",
    ),
    "a form on my own site": (
        "From: me@example.com\nReply-To: customer@c.example\nTo: me@example.com",
        "customer@c.example",
        "",
    ),
    "a desk for tickets": (
        "From: Support <noreply@t.example>\nReply-To: ticket+123@t.example\nTo: me@example.com",
        "ticket+123@t.example",
        "",
    ),
    "a list": (
        f"{LIST}From: ann@a.example\nTo: dev@lists.example",
        "ann@a.example",
        "dev@lists.example",
    ),
    "a list with copies": (
        f"{LIST}From: ann@a.example\nTo: bob@b.example\nCc: dev@lists.example, me@example.com",
        "ann@a.example",
        "bob@b.example, dev@lists.example",
    ),
    "a list that nobody names": (
        f"{LIST}From: ann@a.example\nTo: me@example.com",
        "ann@a.example",
        "dev@lists.example",
    ),
    "a list that wants the answers": (
        f"{LIST}From: ann@a.example\nReply-To: dev@lists.example\nTo: dev@lists.example",
        "ann@a.example",
        "dev@lists.example",
    ),
    "a list that writes itself as sender": (
        f"{LIST}From: Ann via Dev <dev@lists.example>\nReply-To: ann@a.example\nTo: dev@lists.example",
        "ann@a.example",
        "dev@lists.example",
    ),
    "such a list with both in Reply-To": (
        f"{LIST}From: Dev <dev@lists.example>\nReply-To: dev@lists.example, ann@a.example\nTo: dev@lists.example",
        "dev@lists.example, ann@a.example",
        "",
    ),
    "my own mail on a list": (
        f"{LIST}From: me@example.com\nTo: dev@lists.example\nCc: bob@b.example",
        "dev@lists.example",
        "bob@b.example",
    ),
    "my own mail on a list that wants the answers": (
        f"{LIST}From: me@example.com\nReply-To: dev@lists.example\nTo: dev@lists.example\nCc: bob@b.example",
        "dev@lists.example",
        "bob@b.example",
    ),
    "a list with a subject in its address": (
        "List-Post: <mailto:dev@lists.example?subject=hello>\nFrom: ann@a.example\nTo: me@example.com",
        "ann@a.example",
        "dev@lists.example",
    ),
    "a list that takes no mails": (
        "List-Post: NO (posting not allowed)\nList-Id: <news.example>\nFrom: news@n.example\nTo: me@example.com",
        "news@n.example",
        "",
    ),
    "a list with a page of its own": (
        "List-Post: <https://forum.example/post>, <mailto:forum@f.example>\nFrom: ann@a.example\nTo: forum@f.example",
        "ann@a.example",
        "forum@f.example",
    ),
    "a list whose address is no address": (
        "List-Post: <mailto:everybody>\nFrom: ann@a.example\nTo: me@example.com",
        "ann@a.example",
        "",
    ),
    "Mail-Followup-To": (
        f"{LIST}Mail-Followup-To: dev@lists.example\nFrom: ann@a.example\nTo: dev@lists.example\nCc: bob@b.example",
        "dev@lists.example",
        "",
    ),
    "Mail-Followup-To names several": (
        f"{LIST}Mail-Followup-To: dev@lists.example, Bob <bob@b.example>, me@example.com\nFrom: a@a.example",
        "dev@lists.example, bob@b.example",
        "",
    ),
    "Mail-Followup-To is me alone": (
        "Mail-Followup-To: me@example.com\nFrom: ann@a.example\nTo: me@example.com",
        "ann@a.example",
        "",
    ),
    "Mail-Followup-To before Reply-To": (
        f"{LIST}Mail-Followup-To: dev@lists.example\nReply-To: ann@a.example\nFrom: ann@a.example",
        "dev@lists.example",
        "",
    ),
    "two lists": (
        f"{LIST}From: ann@a.example\nTo: dev@lists.example, users@lists.example",
        "ann@a.example",
        "dev@lists.example, users@lists.example",
    ),
    "undisclosed recipients": (
        "From: ann@a.example\nTo: undisclosed-recipients:;",
        "ann@a.example",
        "",
    ),
    "undisclosed recipients with a copy": (
        "From: ann@a.example\nTo: Undisclosed recipients:;\nCc: bob@b.example",
        "ann@a.example",
        "bob@b.example",
    ),
    "a group": (
        "From: ann@a.example\nTo: Team: me@example.com, bob@b.example, Cy <cy@c.example>;",
        "ann@a.example",
        "bob@b.example, cy@c.example",
    ),
    "a group and others": (
        "From: ann@a.example\nTo: Team: bob@b.example;, me@example.com\nCc: Empty:;, dee@d.example",
        "ann@a.example",
        "bob@b.example, dee@d.example",
    ),
    "no To at all": ("From: ann@a.example\nSubject: x", "ann@a.example", ""),
    "a domain beyond ASCII": (
        "From: Jürgen <j@müller.example>\nTo: me@example.com, k@bücher.example",
        "j@xn--mller-kva.example",
        "k@xn--bcher-kva.example",
    ),
    "the same domain in two spellings": (
        "From: j@müller.example\nTo: me@example.com\nCc: j@xn--mller-kva.example, J@MÜLLER.example",
        "j@xn--mller-kva.example",
        "",
    ),
    "a name beyond ASCII": (
        "From: zoë@a.example\nTo: me@example.com, =?utf-8?q?Zo=C3=AB?= <z@b.example>",
        "zoë@a.example",
        "z@b.example",
    ),
    "a name that looks like an address": (
        'From: "boss@work.example" <eve@evil.example>\nTo: me@example.com',
        "eve@evil.example",
        "",
    ),
    "a name with commas": (
        'From: "Lovelace, Ann (A)" <ann@a.example>\nTo: "Me, Myself" <me@example.com>, "Roe, Bob" <bob@b.example>',
        "ann@a.example",
        "bob@b.example",
    ),
    "comments": (
        "From: ann@a.example (Ann, of A)\nTo: me@example.com (me), bob@b.example (Bob <x@y.example>)",
        "ann@a.example",
        "bob@b.example",
    ),
    "folded lines": (
        "From: ann@a.example\nTo: me@example.com,\n bob@b.example,\n\t cy@c.example",
        "ann@a.example",
        "bob@b.example, cy@c.example",
    ),
    "semicolons from Outlook": (
        "From: ann@a.example\nTo: me@example.com; bob@b.example; cy@c.example",
        "ann@a.example",
        "bob@b.example, cy@c.example",
    ),
    "no addresses among them": (
        "From: ann@a.example\nTo: me@example.com, printer, root@localhost, bob@b.example",
        "ann@a.example",
        "bob@b.example",
    ),
    "an address that holds a header": (
        "From: ann@a.example\nTo: me@example.com, =?utf-8?q?bob=40b=2Eexample=0D=0ABcc=3A_eve=40evil=2Eexample?=",
        "ann@a.example",
        "",
    ),
    "three To fields": (
        "From: ann@a.example\nTo: me@example.com\nTo: bob@b.example\nTo: cy@c.example",
        "ann@a.example",
        "bob@b.example, cy@c.example",
    ),
    "Bcc that came along": (
        "From: ann@a.example\nTo: me@example.com\nBcc: secret@s.example",
        "ann@a.example",
        "",
    ),
    "my own address in quotes": (
        'From: ann@a.example\nTo: "me"@example.com, bob@b.example',
        "ann@a.example",
        "bob@b.example",
    ),
    "a quoted local part": (
        'From: ann@a.example\nTo: me@example.com, "bob"@b.example',
        "ann@a.example",
        "bob@b.example",
    ),
    "an angle with a quoted local part": (
        'From: Ann <"ann"@a.example>\nTo: me@example.com',
        "ann@a.example",
        "",
    ),
    "a list whose copy I get": (
        f"{LIST}From: ann@a.example\nTo: dev@lists.example\nCc: me@example.com",
        "ann@a.example",
        "dev@lists.example",
    ),
    "a list whose address is encoded": (
        "List-Post: <mailto:dev%2Ball@lists.example?subject=x>\nFrom: ann@a.example\nTo: me@example.com",
        "ann@a.example",
        "dev+all@lists.example",
    ),
    "a list in capitals": (
        "List-Post: <MAILTO:Dev@Lists.Example>\nFrom: ann@a.example\nTo: dev@lists.example",
        "ann@a.example",
        "dev@lists.example",
    ),
    "a list that wants the answers in capitals": (
        f"{LIST}Reply-To: Dev@Lists.example\nFrom: ann@a.example\nTo: dev@lists.example",
        "ann@a.example",
        "dev@lists.example",
    ),
    "a list as sender with the author in copy": (
        (
            f"{LIST}From: Ann via dev <dev@lists.example>\nReply-To: dev@lists.example\nCc: Ann <ann@a.example>\n"
            "To: dev@lists.example"
        ),
        "dev@lists.example",
        "ann@a.example",
    ),
    "my own mail that asks for answers to me": (
        "From: me@example.com\nReply-To: me+r@example.com\nTo: ann@a.example",
        "ann@a.example",
        "",
    ),
    "my own mail that asks for answers to others": (
        "From: me@example.com\nReply-To: team@work.example\nTo: ann@a.example\nCc: bob@b.example",
        "ann@a.example",
        "bob@b.example",
    ),
    "Reply-To is an alias of mine": (
        "From: ann@a.example\nReply-To: ada@work.example\nTo: me@example.com, bob@b.example",
        "ann@a.example",
        "bob@b.example",
    ),
    "Reply-To is a group": (
        "From: ann@a.example\nReply-To: Office: office@a.example, bob@b.example;\nTo: me@example.com",
        "office@a.example, bob@b.example",
        "",
    ),
    "an alias of mine in punycode": (
        "From: ann@a.example\nTo: büro@xn--mller-kva.example, bob@b.example",
        "ann@a.example",
        "bob@b.example",
    ),
    "an alias of mine in capitals beyond ASCII": (
        "From: ann@a.example\nTo: BÜRO@MÜLLER.EXAMPLE, bob@b.example",
        "ann@a.example",
        "bob@b.example",
    ),
    "an alias of mine in parts of letters": (
        "From: ann@a.example\nTo: büro@müller.example, bob@b.example",
        "ann@a.example",
        "bob@b.example",
    ),
    "a list in three spellings": (
        (
            "List-Post: <mailto:dev@xn--mller-kva.example>\nReply-To: dev@müller.example\nFrom: ann@a.example\n"
            "To: dev@MÜLLER.example"
        ),
        "ann@a.example",
        "dev@xn--mller-kva.example",
    ),
    "domains with a dot at the end": (
        "From: ann@a.example.\nTo: me@example.com., bob@b.example.",
        "ann@a.example",
        "bob@b.example",
    ),
    "spaces around the @": (
        "From: ann @ a.example\nTo: me@example.com, bob @b.example",
        "ann@a.example",
        "bob@b.example",
    ),
    "a bracket that is never closed": (
        "From: Ann <ann@a.example\nTo: me@example.com, Bob <bob@b.example",
        "ann@a.example",
        "bob@b.example",
    ),
    "brackets in brackets": (
        "From: Ann <<ann@a.example>>\nTo: me@example.com",
        "ann@a.example",
        "",
    ),
    "a route before the address": (
        "From: Ann <@relay.example,@b.example:ann@a.example>\nTo: me@example.com",
        "ann@a.example",
        "",
    ),
    "a link for an address": (
        "From: Ann <mailto:ann@a.example>\nTo: me@example.com",
        "ann@a.example",
        "",
    ),
    "a name with a comma and no quotes": (
        "From: Lovelace, Ann <ann@a.example>\nTo: me@example.com",
        "ann@a.example",
        "",
    ),
    "a name that holds two addresses": (
        'From: ann@a.example\nTo: "bob@b.example, eve@evil.example" <cy@c.example>, me@example.com',
        "ann@a.example",
        "cy@c.example",
    ),
    "an encoded name with a comma": (
        (
            "From: =?utf-8?q?Lovelace=2C_Ann?= <ann@a.example>\n"
            "To: me@example.com, =?utf-8?b?Um9lLCBCb2I=?= <bob@b.example>"
        ),
        "ann@a.example",
        "bob@b.example",
    ),
    "an encoded name that reads as an address": (
        "From: =?utf-8?q?Ann_=3Cann=40a=2Eexample=3E?= <ann@a.example>\nTo: me@example.com",
        "ann@a.example",
        "",
    ),
    "capitals before the @": (
        "From: Ann@A.example\nTo: me@example.com, ann@a.example, BOB@b.example, bob@B.EXAMPLE",
        "Ann@a.example",
        "BOB@b.example",
    ),
    "the other name of Gmail": (
        "From: ann@a.example\nTo: Ada.Lovelace@GoogleMail.com, bob@b.example",
        "ann@a.example",
        "bob@b.example",
    ),
    "dots of another at Gmail": (
        "From: ann@a.example\nTo: b.o.b@gmail.com, bob@gmail.com, me@example.com",
        "ann@a.example",
        "b.o.b@gmail.com, bob@gmail.com",
    ),
    "Mail-Followup-To is empty": (
        f"{LIST}Mail-Followup-To:\nFrom: ann@a.example\nTo: dev@lists.example",
        "ann@a.example",
        "dev@lists.example",
    ),
    "Mail-Followup-To is no address": (
        f"{LIST}Mail-Followup-To: everybody\nFrom: ann@a.example\nTo: dev@lists.example",
        "ann@a.example",
        "dev@lists.example",
    ),
    "a mail that was sent on": (
        "Resent-From: cy@c.example\nResent-To: me@example.com\nFrom: ann@a.example\nTo: bob@b.example",
        "ann@a.example",
        "bob@b.example",
    ),
    "a secretary as sender": (
        "From: boss@a.example\nSender: secretary@a.example\nTo: me@example.com",
        "boss@a.example",
        "",
    ),
    "undisclosed recipients with a space": (
        "From: ann@a.example\nTo: undisclosed-recipients: ;\nApparently-To: x@y.example",
        "ann@a.example",
        "",
    ),
    "undisclosed recipients in quotes": (
        'From: ann@a.example\nTo: "Undisclosed recipients" <>\nCc: bob@b.example',
        "ann@a.example",
        "bob@b.example",
    ),
    "two groups": (
        "From: ann@a.example\nTo: A: bob@b.example;, B: cy@c.example, me@example.com;",
        "ann@a.example",
        "bob@b.example, cy@c.example",
    ),
    "comments in comments": (
        "From: ann@a.example (a (b) c)\nTo: me@example.com, bob(the builder)@b.example",
        "ann@a.example",
        "bob@b.example",
    ),
    "tabs between the lines": (
        "From: ann@a.example\r\nTo:\tme@example.com,\r\n\tbob@b.example",
        "ann@a.example",
        "bob@b.example",
    ),
    "a number for a domain": (
        "From: ann@a.example\nTo: me@example.com, x@[192.0.2.1], bob@b.example",
        "ann@a.example",
        "bob@b.example",
    ),
    "a list with a blind copy to me": (
        f"{LIST}From: ann@a.example\nTo: bob@b.example",
        "ann@a.example",
        "bob@b.example, dev@lists.example",
    ),
    "an unseen character in my own address": (
        "From: ann@a.example\nTo: me\u200b@example.com, bob@b.example",
        "ann@a.example",
        "bob@b.example",
    ),
    "the author by two addresses": (
        "From: ann@a.example\nReply-To: ann+reply@a.example\nTo: me+x@example.com\nCc: me+y@example.com, ANN@a.example",
        "ann+reply@a.example",
        "ANN@a.example",
    ),
    "commas without an address": (
        "From: ann@a.example,\nTo: , me@example.com,, bob@b.example,",
        "ann@a.example",
        "bob@b.example",
    ),
    "a list that leaves Reply-To to the author": (
        f"{LIST}Reply-To: ann@a.example\nFrom: ann@a.example\nTo: dev@lists.example\nCc: me@example.com",
        "ann@a.example",
        "dev@lists.example",
    ),
    "my own mail to a group with me in it": (
        "From: me@example.com\nTo: Team: ada@work.example, ann@a.example;",
        "ann@a.example",
        "",
    ),
}
NOBODY = {
    "to myself": "From: me@example.com\nTo: ada@work.example",
    "no sender": "Subject: x",
    "a sender who is none": "From: Mail system\nTo: me@example.com",
    "a bounce": "From: <>\nTo: me@example.com",
}
