"""The person's inbox in the browser: plain pages that work without JavaScript, and a little JavaScript on top.

A page is a function of a request; an effect is a POST with the session's own form token. Both are declared through
`entry`, which lets nobody in who did not come by a one-time link (or the password) and checks Host and Origin.
`site` is the page as one application.
"""
