import os
import socket
from pathlib import Path

from vsketchdlc.validation.lane_ports import ports_of


def test_the_ports_of_a_process_are_those_of_its_open_connections():
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()) as client, server.accept()[0] as accepted:
            found = ports_of(Path(f"/proc/{os.getpid()}"))
            assert client.getsockname()[1] in found
            assert accepted.getsockname()[1] in found
        assert client.fileno() == -1
    assert server.fileno() == -1
