"""Sign-in of a command line by a code that its person types in a browser.

As OAuth's device authorization grant (RFC 8628): the command line asks for a code and a secret,
shows the code, and asks with the secret until somebody who is signed in has typed the code at
``/hub/sign-in`` and said yes; then it is given a token of that person, once.

``codes`` keeps the requests that wait; ``handlers`` are the page and the two addresses that a
command line asks.
"""
