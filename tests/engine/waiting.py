"""Wait for a status of an engine, by its own callbacks."""

import asyncio


async def until(engine, condition):
    """Return when `condition(engine.status)` holds; TimeoutError after a minute."""
    changed = asyncio.Event()
    engine.on_status(lambda status: changed.set())
    async with asyncio.timeout(60):
        while not condition(engine.status):
            await changed.wait()
            changed.clear()
