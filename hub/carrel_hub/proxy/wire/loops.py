"""The event loop: uvloop where there is one for this machine, else asyncio's own.

uvloop has no wheels for Windows and some rarer machines; everything runs there too, slower.
"""

import asyncio

try:
    import uvloop
except ImportError:  # no wheel for this machine
    new_loop = asyncio.new_event_loop
else:
    new_loop = uvloop.new_event_loop
