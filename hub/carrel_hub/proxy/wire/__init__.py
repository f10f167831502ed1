"""The data path of requests without a framework: bytes come in, are looked at once, and go on.

Two protocols of asyncio, one for connections of callers (``caller``) and one for connections to
targets (``line``, kept in ``lines``), joined for one request by an ``exchange``. The parser is
llhttp's (``httptools``), which refuses what two programs may read in two ways; what frames a
message towards the other side is always written anew, never copied. Bodies pass in the callbacks
that read them, and whichever side is slow stops the reading of the other. Runs on any loop; on
uvloop where there is one, it costs a third of a framework on both sides.
"""
