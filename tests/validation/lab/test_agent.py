import pytest
from vsketchdlc.validation.lab.agent import remote_words


@pytest.mark.parametrize(
    ("words", "host", "command"),
    [
        (["h1", "prted", "--x", "1"], "h1", ["prted", "--x", "1"]),
        (["-x", "-n", "h1", "true"], "h1", ["true"]),
        (["-o", "StrictHostKeyChecking=no", "-p", "22", "root@h1", "date", "-u"], "h1", ["date", "-u"]),
        (["-oBatchMode=yes", "h1"], "h1", []),
        (["-l", "root", "h1", "hostname"], "h1", ["hostname"]),
        (["-q"], "", []),
    ],
)
def test_options_host_and_command_of_an_ssh_line(words, host, command):
    assert remote_words(words) == (host, command)
