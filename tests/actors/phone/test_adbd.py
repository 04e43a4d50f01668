"""The phone's adbd under real clients, and under hosts that break the rules."""

import io
import socket
import struct
import subprocess
import threading
import time

import adbutils
import pytest
from PIL import Image

from actors.phone import adbd

HEADER = struct.Struct("<6I")


# adb itself.


def test_shell_gives_both_outputs_and_the_exit_status(adb_server, phone_server):
    done = adb_server.adb(phone_server.serial, "shell", "echo out; echo err >&2; exit 7")
    assert (done.stdout, done.stderr, done.returncode) == (b"out\n", b"err\n", 7)
    assert adb_server.adb(phone_server.serial, "shell", "false").returncode == 1


def test_exec_out_gives_a_png(adb_server, phone_server):
    png = adb_server.adb(phone_server.serial, "exec-out", "screencap", "-p").stdout
    with Image.open(io.BytesIO(png)) as image:
        image.load()
        assert (image.format, image.mode, image.size) == ("PNG", "RGB", (360, 640))
        assert image.tobytes() == phone_server.android.phone.render().tobytes()


def test_standard_input_reaches_the_command(adb_server, phone_server):
    text = b"line\n" * 100_000
    done = adb_server.adb(phone_server.serial, "shell", "cat > /sdcard/in.txt", stdin=text)
    assert done.returncode == 0
    assert adb_server.adb(phone_server.serial, "exec-out", "cat /sdcard/in.txt").stdout == text


def test_lines_are_run_one_by_one_in_one_shell(adb_server, phone_server):
    lines = b"x=5\necho $x\nexit 4\necho never\n"
    done = adb_server.adb(phone_server.serial, "shell", stdin=lines)
    assert (done.stdout, done.returncode) == (b"5\n", 4)


def test_a_terminal_sees_its_keys_and_a_prompt(adb_server, phone_server):
    keys = b"echo hx\x7fi\rnope\x03exit 3\r"
    done = adb_server.adb(phone_server.serial, "shell", "-tt", stdin=keys)
    prompt = b"simphone:/ # "
    shown = [b"echo hx\b \bi", b"hi", b"nope^C", b"exit 3", b""]
    assert done.stdout.replace(prompt, b"").split(b"\r\n") == shown
    assert (done.stdout.count(prompt), done.returncode) == (3, 3)


def test_push_pull_and_list(adb_server, phone_server, tmp_path):
    source, back = tmp_path / "a.bin", tmp_path / "b.bin"
    source.write_bytes(bytes(range(256)) * 10_000)  # many messages of 64 KiB
    adb_server.adb(phone_server.serial, "push", str(source), "/sdcard/new/folder/a.bin")
    listed = adb_server.adb(phone_server.serial, "ls", "/sdcard/new/folder").stdout
    assert listed.split()[1] == b"%08x" % source.stat().st_size
    pulled = adb_server.adb(phone_server.serial, "pull", "/sdcard/new/folder/a.bin", str(back))
    assert pulled.returncode == 0
    assert back.read_bytes() == source.read_bytes()


def test_pull_of_a_missing_file_and_push_onto_a_file_fail(adb_server, phone_server, tmp_path):
    missing = adb_server.adb(phone_server.serial, "pull", "/sdcard/none", str(tmp_path / "x"))
    assert missing.returncode == 1
    assert b"No such file" in missing.stdout + missing.stderr
    (tmp_path / "f").write_text("f")
    source = str(tmp_path / "f")
    assert adb_server.adb(phone_server.serial, "push", source, "/sdcard/f").returncode == 0
    assert adb_server.adb(phone_server.serial, "push", source, "/sdcard/f/g").returncode == 1


def test_install_streams_through_standard_input(adb_server, phone_server, tmp_path):
    package = tmp_path / "some.apk"
    package.write_text("org.example.app\n")
    done = adb_server.adb(phone_server.serial, "install", str(package))
    assert done.stdout.endswith(b"Success\n")
    third = adb_server.adb(phone_server.serial, "shell", "pm list packages -3").stdout
    assert third == b"package:org.example.app\n"


@pytest.mark.parametrize("words", [["reboot"], ["reverse", "tcp:1", "tcp:2"], ["tcpip", "5555"]])
def test_a_refused_service_fails_at_once(adb_server, phone_server, words):
    assert adb_server.adb(phone_server.serial, *words, timeout_s=5).returncode == 1


def test_output_arrives_before_a_command_that_waits(adb_server, phone_server):
    command = ["-P", str(adb_server.port), "-s", phone_server.serial, "shell", "echo 1; sleep 60"]
    with subprocess.Popen(
        [adbutils.adb_path(), *command], stdout=subprocess.PIPE, env=adb_server.environment
    ) as process:
        assert process.stdout.readline() == b"1\n"
        process.kill()
    # The phone noticed: nothing of the stream is left, and it answers.
    assert adb_server.adb(phone_server.serial, "shell", "echo 2").stdout == b"2\n"


# adbutils.


def test_adbutils_shell_and_its_exit_codes(adb_server, phone_server):
    device = adb_server.device(phone_server.serial)
    assert device.shell("echo hi there") == "hi there"
    assert device.shell(["echo", "it's", '"q" $x `y`']) == 'it\'s "q" $x `y`'
    assert device.shell2("false").returncode == 1
    found = device.shell2("echo a; echo b >&2; exit 9", v2=True)
    assert (found.stdout, found.stderr, found.returncode) == ("a\n", "b\n", 9)


def test_adbutils_reads_the_screen(adb_server, phone_server):
    device = adb_server.device(phone_server.serial)
    expected = phone_server.android.phone.render().tobytes()
    assert device.screenshot(error_ok=False).convert("RGB").tobytes() == expected
    assert tuple(device.window_size()) == (360, 640)
    assert device.rotation() == 0
    assert "<hierarchy" in device.dump_hierarchy()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_adbutils_reads_the_framebuffer(adb_server, phone_server):  # and leaves its socket open
    frame = adb_server.device(phone_server.serial).framebuffer().convert("RGB")
    assert frame.tobytes() == phone_server.android.phone.render().tobytes()


def test_adbutils_starts_apps_clicks_and_types(adb_server, phone_server):
    device = adb_server.device(phone_server.serial)
    device.app_start("com.android.chrome")
    assert device.app_current().package == "com.android.chrome"
    field = next(n for n in phone_server.android.phone.nodes() if "EditText" in n.class_name)
    x0, y0, x1, y1 = field.bounds
    device.click((x0 + x1) // 2, (y0 + y1) // 2)
    device.send_keys("it's 5 & more")
    assert phone_server.android.phone.typed == "it's 5 & more"
    device.app_stop("com.android.chrome")
    assert device.app_current().package == "com.android.launcher3"


def test_adbutils_transfers_files(adb_server, phone_server):
    device = adb_server.device(phone_server.serial)
    data = b"\0\xff" * 100_000
    device.sync.push(data, "/data/local/tmp/x")
    assert device.sync.stat("/data/local/tmp/x").size == len(data)
    assert device.sync.read_bytes("/data/local/tmp/x") == data
    assert [entry.path for entry in device.sync.list("/data/local/tmp")] == ["x"]
    assert device.sync.exists("/data/local/tmp/y") is False


def test_adbutils_asks_about_apps_and_settings(adb_server, phone_server):
    device = adb_server.device(phone_server.serial)
    assert "com.android.settings" in device.list_packages()
    assert device.app_info("com.android.settings").version_name == "1.0"
    assert device.app_info("org.none") is None
    assert device.prop.model == "SimPhone"
    assert device.is_screen_on()


# Big outputs, many phones and streams.


def test_output_larger_than_a_packet_arrives_whole(adb_server, phone_server):
    data = bytes(range(256)) * 20_000  # 5 MB over packets of 1 MiB
    phone_server.android.files.write("/sdcard/big", data)
    assert adb_server.adb(phone_server.serial, "exec-out", "cat /sdcard/big").stdout == data
    assert adb_server.adb(phone_server.serial, "shell", "cat /sdcard/big").stdout == data


def test_two_phones_of_one_process_are_apart(adb_server, serve_phones):
    with serve_phones(2) as phones:
        first, second = map(adb_server.device, phones.serials)
        first.shell("am start -n com.android.settings/.Settings")
        assert first.app_current().package == "com.android.settings"
        assert second.app_current().package == "com.android.launcher3"
        assert [d.shell("getprop ro.serialno") for d in (first, second)] == phones.serials


def test_a_waiting_command_does_not_hold_up_others(adb_server, phone_server):
    device = adb_server.device(phone_server.serial)
    threads = [threading.Thread(target=device.shell, args=("sleep 0.5",)) for _ in range(8)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    assert device.shell("echo 1") == "1"
    assert time.monotonic() - began < 0.4
    for thread in threads:
        thread.join()


def test_a_swipe_takes_its_time_only_if_asked_to(adb_server, serve_phones):
    with serve_phones(1, time_factor=1.0) as phones:
        began = time.monotonic()
        adb_server.adb(phones.serial, "shell", "input swipe 180 500 180 100 400")
        assert 0.4 <= time.monotonic() - began < 2


def test_a_phone_survives_the_end_of_the_adb_server(adb_server, phone_server):
    adb_server.adb(None, "kill-server")
    adb_server.stop()
    adb_server.start()
    deadline = time.monotonic() + 10
    while phone_server.serial not in adb_server.serials():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert adb_server.adb(phone_server.serial, "shell", "echo back").stdout == b"back\n"


# Hosts without manners, on the phone's own port.


class Host:
    """Speaks the transport by hand."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=5)

    def send(self, command, first=0, second=0, payload=b""):
        number = int.from_bytes(command, "little")
        header = HEADER.pack(number, first, second, len(payload), 0, number ^ 0xFFFFFFFF)
        self.socket.sendall(header + payload)

    def connect(self, version=adbd.VERSION, max_payload=1 << 20):
        self.send(b"CNXN", version, max_payload, b"host::")
        return self.receive()

    def receive(self):
        command, first, second, size, checksum, _ = HEADER.unpack(self._exactly(HEADER.size))
        payload = self._exactly(size)
        return command.to_bytes(4, "little"), first, second, payload, checksum

    def _exactly(self, size):
        data = b""
        while len(data) < size:
            chunk = self.socket.recv(size - len(data))
            if not chunk:
                raise EOFError
            data += chunk
        return data

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()


@pytest.fixture
def host(phone_server):
    with Host(phone_server.servers[0].port) as host:
        yield host


def test_packets_are_as_small_as_the_host_wants(host):
    host.connect(max_payload=100)
    host.send(b"OPEN", 7, 0, b"shell:echo " + b"x" * 249 + b"\0")
    assert host.receive()[:3] == (b"OKAY", 1, 7)
    sizes = []
    while (packet := host.receive())[0] == b"WRTE":
        sizes.append(len(packet[3]))
        host.send(b"OKAY", 7, 1)
    assert sizes == [100, 100, 50]
    assert packet[:3] == (b"CLSE", 1, 7)


def test_the_next_packet_waits_for_the_acknowledgement(host):
    host.connect(max_payload=10)
    host.send(b"OPEN", 7, 0, b"shell:echo 123456789012345\0")
    host.receive()
    assert host.receive()[3] == b"1234567890"
    host.socket.settimeout(0.2)
    with pytest.raises(TimeoutError):
        host.receive()


def test_an_old_host_gets_checksums(host):
    assert host.connect(version=0x01000000)[1] == 0x01000000
    host.send(b"OPEN", 7, 0, b"shell:echo sum\0")
    host.receive()
    _, _, _, payload, checksum = host.receive()
    assert checksum == sum(payload) == sum(b"sum\n")


def test_a_closed_stream_is_answered_and_its_command_ends(host):
    host.connect()
    host.send(b"OPEN", 7, 0, b"shell:while true; do true; done\0")
    assert host.receive()[0] == b"OKAY"
    host.send(b"CLSE", 7, 1)
    assert host.receive()[:3] == (b"CLSE", 1, 7)
    host.send(b"OPEN", 8, 0, b"shell:echo alive\0")
    host.receive()
    assert host.receive()[3] == b"alive\n"


def test_a_refusal_names_no_stream(host):
    host.connect()
    host.send(b"OPEN", 7, 0, b"tcp:80\0")
    assert host.receive()[:3] == (b"CLSE", 0, 7)


def test_streams_are_counted(host):
    host.connect()
    for number in range(adbd.MAX_STREAMS + 1):
        host.send(b"OPEN", number + 1, 0, b"shell:sleep 60\0")
    replies = [host.receive()[0] for _ in range(adbd.MAX_STREAMS + 1)]
    assert replies == [b"OKAY"] * adbd.MAX_STREAMS + [b"CLSE"]


@pytest.mark.parametrize(
    "bad",
    [
        b"GET / HTTP/1.1\r\nHost: phone\r\n\r\n",
        HEADER.pack(1, 0, 0, 0, 0, 1),  # no inverted command
        HEADER.pack(0x45545257, 1, 1, 1 << 30, 0, 0x45545257 ^ 0xFFFFFFFF),  # a huge payload
        HEADER.pack(0x4E45504F, 1, 0, 0, 0, 0x4E45504F ^ 0xFFFFFFFF),  # OPEN before CNXN
    ],
)
def test_a_host_that_speaks_something_else_is_hung_up_on(host, bad):
    host.socket.sendall(bad)
    with pytest.raises((EOFError, ConnectionResetError)):
        host.receive()


def test_a_host_that_does_not_wait_is_hung_up_on(host):
    host.connect()
    host.send(b"OPEN", 7, 0, b"shell:sleep 60\0")
    host.receive()
    host.send(b"WRTE", 7, 1, b"1")
    host.send(b"WRTE", 7, 1, b"2")
    with pytest.raises((EOFError, ConnectionResetError)):
        host.receive()
