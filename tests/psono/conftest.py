"""No event loop before the first test.

On Python 3.11 to 3.13 the asyncio plugin asks for the current loop before it sets its own, which makes one
that nobody closes; its ResourceWarning then fails whatever test the garbage collector runs in. With the
current loop set to none there is none to make.
"""

from __future__ import annotations

import asyncio

asyncio.set_event_loop(None)
