"""The phone's shell against hand-written results of mksh, and against noise."""

import asyncio
import random

import pytest

from actors.phone.android import Android
from actors.phone.lexer import MAX_DEPTH, Lexer, ShellSyntaxError
from actors.phone.phone import Phone
from actors.phone.process import Input, Output, Streams
from actors.phone.shell import Shell
from actors.phone.syntax import parse
from tests.actors.phone.simulation import run_line


@pytest.fixture
def android():
    return Android(Phone())


@pytest.fixture
def sh(android):
    """Runs a command line in a fresh shell; returns stdout, stderr and status."""

    def run(line, stdin=b""):
        output, errors, status = run_line(android, line, stdin)
        return output.decode(), errors, status

    return run


WORDS = [  # what follows printf '<%s>', and what it prints
    ("a b  c", "<a><b><c>"),
    ("'a b' c", "<a b><c>"),
    ('"a b" c', "<a b><c>"),
    ("a'b c'd", "<ab cd>"),
    ("''", "<>"),
    ('"" x', "<><x>"),
    (r"a\ b", "<a b>"),
    (r"\'", "<'>"),
    (r"'\'", "<\\>"),
    (r'"\a\$\"\\\`"', '<\\a$"\\`>'),
    ("'it'\\''s'", "<it's>"),
    ("'$HOME'", "<$HOME>"),
    ('"$HOME"x', "</x>"),
    ("$HOME", "</>"),
    ("${HOME}x", "</x>"),
    ("a$", "<a$>"),
    ("$none", "<>"),  # printf without an argument
    ('"$none"', "<>"),
    ("a $none b", "<a><b>"),
    ('a "$none" b', "<a><><b>"),
    ("${none:-x y}", "<x><y>"),
    ('"${none:-x y}"', "<x y>"),
    ("${HOME:+set}", "<set>"),
    ("${none+set}z", "<z>"),
    ("${#HOME}", "<1>"),
    ("$(echo a  b)", "<a><b>"),
    ('"$(echo a; echo b)"', "<a\nb>"),
    ("`echo a b`", "<a><b>"),
    ("x$(echo ' a b ')y", "<x><a><b><y>"),
    ("$(echo ')')", "<)>"),
    ("$(echo $(echo in))", "<in>"),
    ("`echo \\`echo in\\``", "<in>"),
    ("a#b #c", "<a#b>"),
    ("~", "</>"),
    ("~/x a~", "<//x><a~>"),
    ("'~'", "<~>"),
    ("a\\\nb", "<ab>"),
    ("'a\nb'", "<a\nb>"),
    ("*", "<*>"),  # unlike a host's shell, the root has no files: see the glob tests
    ("'*'", "<*>"),
    ("{a", "<{a>"),
    ("a=b", "<a=b>"),
    ("!", "<!>"),
    ("if", "<if>"),
    ("100%sure", "<100%sure>"),
    ("é", "<é>"),
]


@pytest.mark.parametrize(("words", "expected"), WORDS)
def test_words(sh, android, words, expected):
    for name in android.files.list_dir("/"):
        android.files.remove(f"/{name}", recursive=True)
    assert sh(f"printf '<%s>' {words}") == (expected, "", 0)


LINES = [
    ("false && echo a; echo b", "b\n", 0),
    ("true && echo a || echo b", "a\n", 0),
    ("false || echo b && echo c", "b\nc\n", 0),
    ("false; echo $?", "1\n", 0),
    ("false", "", 1),
    ("! false", "", 0),
    ("! true", "", 1),
    ("none 2>/dev/null; echo $?", "127\n", 0),
    ("echo a | cat | cat", "a\n", 0),
    ("echo a | grep b", "", 1),
    ("false | true", "", 0),
    ("x=1; echo $x", "1\n", 0),
    ("x=1 echo $x", "\n", 0),
    ("x=1 sh -c 'echo $x'; echo $x", "1\n\n", 0),
    ("x='a  b'; y=$x; echo \"$y\"", "a  b\n", 0),
    ("export A=1 B=2; echo $A$B", "12\n", 0),
    ("echo a; # comment\necho b", "a\nb\n", 0),
    ("if true; then echo a; else echo b; fi", "a\n", 0),
    ("if false; then echo a; elif true; then echo b; fi", "b\n", 0),
    ('if [ -d "/sdcard" ]; then\n echo Exists\nelse\n echo no\nfi', "Exists\n", 0),
    ('if [ -d "/none" ]; then echo a; fi', "", 0),
    ("for i in 1 2 '3 4'; do echo $i; done", "1\n2\n3 4\n", 0),
    ('i=; while [ "$i" != xx ]; do i=x$i; done; echo $i', "xx\n", 0),
    ("until true; do echo a; done", "", 0),
    ("while [[ -z $(getprop sys.boot_completed) ]]; do sleep 1; done; echo up", "up\n", 0),
    ("(x=1; exit 3); echo $? $x", "3\n", 0),
    ("{ echo a; echo b; } | wc -l", "2\n", 0),
    ("exit 5; echo never", "", 5),
    ("cd /sdcard && pwd; (cd /); pwd", "/sdcard\n/sdcard\n", 0),
    ("echo a > /sdcard/f; echo b >> /sdcard/f; cat /sdcard/f", "a\nb\n", 0),
    ("cat < /sdcard/f", "", 1),
    (
        "none > /sdcard/f 2>&1; cat /sdcard/f",
        "/system/bin/sh: none: inaccessible or not found\n",
        0,
    ),
    ("none 2>&1 > /dev/null", "/system/bin/sh: none: inaccessible or not found\n", 127),
    ("none &> /dev/null", "", 127),
    ("echo a >&2 2>/dev/null | cat", "", 0),
    ("echo a2>/sdcard/f; cat /sdcard/f", "a2\n", 0),
    ("echo a 2>/sdcard/f; cat /sdcard/f", "a\n", 0),
    ("> /sdcard/f; ls /sdcard/f", "/sdcard/f\n", 0),
    ("echo a & echo b", "a\nb\n", 0),
    ('export ANDROID_LOG_TAGS=""; exec logcat -d', "--------- beginning of main\n", 0),
    ("echo hi; echo X4EXIT:$?", "hi\nX4EXIT:0\n", 0),
    ("read a b; echo $b", "\n", 0),
    ("echo 'one two three' | { read a b; echo $b; }", "two three\n", 0),
    ("su 0 echo root; su -c 'echo $HOME'", "root\n/\n", 0),
    ("echo a b | xargs echo x", "x a b\n", 0),
    ("timeout 0.05 sleep 9; echo $?", "143\n", 0),
    ("[ 2 -gt 1 ] && [ a != b ] && [ ! -f /sdcard ] && echo yes", "yes\n", 0),
    ("[ -f /sdcard -o -d /sdcard ] && test a = a && echo yes", "yes\n", 0),
    ("[ 1 -eq", "", 2),
    ("", "", 0),
    (" \n\n ", "", 0),
]


@pytest.mark.parametrize(("line", "out", "status"), LINES)
def test_lines(sh, line, out, status):
    found = sh(line)
    assert (found[0], found[2]) == (out, status)


def test_wildcards_match_files_and_else_stay(sh, android):
    for name in ("a.txt", "b.txt", "c d.txt", ".hidden.txt", "x[1].log"):
        android.files.write(f"/sdcard/{name}", b"")
    files = "/sdcard/a.txt\n/sdcard/b.txt\n/sdcard/c d.txt\n"
    assert sh("for f in /sdcard/*.txt; do echo $f; done")[0] == files
    assert sh("cd /sdcard; echo ?.txt [!a].txt")[0] == "a.txt b.txt b.txt\n"
    assert sh("p='/sdcard/?.txt'; echo $p; echo \"$p\"")[0].splitlines() == [
        "/sdcard/a.txt /sdcard/b.txt",
        "/sdcard/?.txt",
    ]
    assert sh("echo /sdcard/'*'.txt /none/* [z-a]")[0] == "/sdcard/*.txt /none/* [z-a]\n"
    assert sh("echo /sdcard/x\\[*")[0] == "/sdcard/x[1].log\n"
    assert sh("rm /sdcard/*.txt; ls -a /sdcard")[0].split() == [
        ".hidden.txt",
        "Download",
        "Pictures",
        "x[1].log",
    ]


BROKEN = [
    "'",
    '"',
    "`",
    "$(",
    "${",
    "${x!}",
    "${x:=y}",
    "$((1+1))",
    ")",
    "(",
    "echo )",
    "a |",
    "| a",
    "a &&",
    "&& a",
    "a ;; b",
    "if",
    "if true; then fi",
    "if true; fi",
    "then",
    "for",
    "for 1 in a; do b; done",
    "while true; do",
    "{ a",
    "a <<x",
    "a >",
    "> ;",
    "(" * 100,
    "$(" * 100,
    "{ " * 100,
    "${a:-" * 100,
]


@pytest.mark.parametrize("line", BROKEN)
def test_a_broken_line_is_reported_and_nothing_of_it_runs(sh, line):
    out, err, status = sh(f"echo ran; {line}")
    assert status == 1
    assert err.startswith("/system/bin/sh: syntax error")
    assert len(err.splitlines()) == 1
    assert out == ""


def test_depth_of_running_is_bounded(sh, android):
    android.files.write("/sdcard/self.sh", b"sh /sdcard/self.sh")
    _, err, status = sh("sh /sdcard/self.sh")
    assert (err, status) == ("/system/bin/sh: syntax error: nested too deeply\n", 1)
    assert sh(f"{'(' * (MAX_DEPTH - 2)}echo in{')' * (MAX_DEPTH - 2)}")[0] == "in\n"


PIECES = [
    *" \t\n'\"`\\$(){}[]<>|&;!#*?~=-+:/%.,0129éß\0\udcff",
    *(
        "$(",
        "${",
        "${x:-",
        "&&",
        "||",
        ">>",
        "2>",
        ">&1",
        "$?",
        "${#",
        " ; ",
        "/sdcard/*",
        "[!",
        "a=b ",
    ),
    *("if ", "then ", "fi ", "for i in ", "do ", "done ", "echo ", "cat ", "input ", "settings "),
    *("tap ", "get ", "system ", "test ", "[ ", " ]", "printf ", "grep ", "ls ", "exit ", "cd "),
]


def test_no_string_breaks_the_lexer():
    rng = random.Random(0)
    for _ in range(5000):
        line = "".join(rng.choices(PIECES, k=rng.randrange(20)))
        lexer = Lexer(line)
        try:
            while token := lexer.token():
                if getattr(token, "text", None) == "":
                    break
        except ShellSyntaxError:
            pass
        assert lexer.position <= len(line) + 1


def test_no_string_breaks_the_shell(android):
    """Any line ends with a status, and only a broken one says so."""
    rng = random.Random(1)

    async def run(line):
        streams = Streams(Input(b"stdin\n"), Output(), Output())
        status = await Shell(android).run(line, streams)
        return status, streams.err.take()

    async def run_all():
        for _ in range(5000):
            line = "".join(rng.choices(PIECES, k=rng.randrange(20)))
            status, err = await run(line)
            assert 0 <= status <= 255
            try:
                parse(line)
            except ShellSyntaxError:
                assert b"syntax error" in err
                assert status == 1

    asyncio.run(asyncio.wait_for(run_all(), 60))
