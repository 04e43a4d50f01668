"""A phone's server ends in order, whatever its hosts are doing."""

import asyncio
import contextlib
import socket

import pytest

from actors.phone.android import Android
from actors.phone.phone import Phone
from actors.phone.server import PhoneServer
from common import ports


async def close_after(turns: int) -> None:
    """Closes a server so many turns of the loop after three hosts connected to it."""
    port = ports.phone_port()
    server = PhoneServer(Android(Phone()), port, adb_port=ports.free_port())
    await server.start()
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        for _ in range(turns):
            await asyncio.sleep(0)
        await asyncio.wait_for(server.close(), 2)


@pytest.mark.parametrize("turns", range(8))
def test_nothing_is_complained_about_when_hosts_come_while_it_ends(turns):
    complaints = []
    with asyncio.Runner() as runner:
        runner.get_loop().set_exception_handler(lambda _, context: complaints.append(context))
        runner.run(close_after(turns))
    assert not complaints
