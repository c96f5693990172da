"""`rivals watch --mqtt` with a real broker: mosquitto of Debian, where it is installed."""

from __future__ import annotations

import json
import queue
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

import rivals
from rivals.errors import RivalsError
from rivals.watch import outbox
from rivals.watch.frame import Frame, Sighting
from rivals.watch.mqtt_sink import Broker, MqttSink, parse_label
from watched import LABELS, Watched, png, shape, teach_shapes, until

MOSQUITTO = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
pytest.importorskip("paho.mqtt", reason="paho-mqtt is not installed: rivals[watch]")
if MOSQUITTO is None:
    pytest.skip("mosquitto is not installed; tests/devices.sh does it", allow_module_level=True)


class Mosquitto:
    """A real broker, which can be killed and started again on its port."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.users = folder / "users"
        self.config = folder / "mosquitto.conf"
        self.config.write_text(f"listener {self.port} 127.0.0.1\nallow_anonymous true\n")
        self.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        self.process = subprocess.Popen(
            [str(MOSQUITTO), "-c", str(self.config)], stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip

        def answers() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", self.port)) == 0

        until(answers, 10)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Listener:
    """Somebody else at the broker."""

    def __init__(self, port: int) -> None:
        from paho.mqtt import client as paho
        from paho.mqtt.enums import CallbackAPIVersion

        self.messages: queue.Queue[tuple[str, str, bool]] = queue.Queue()
        self.client = paho.Client(CallbackAPIVersion.VERSION2)
        self.client.on_connect = lambda client, *_: client.subscribe("#", 1)
        self.client.on_message = lambda _, __, m: self.messages.put(
            (m.topic, m.payload.decode(errors="replace"), m.retain)
        )
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()

    def next(self, topic: str, seconds: float = 20.0) -> Any:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                found, payload, _ = self.messages.get(timeout=max(0.01, end - time.monotonic()))
            except queue.Empty:
                break
            if found == topic:
                return json.loads(payload) if payload.startswith("{") else payload
        raise AssertionError(f"no message on {topic}")

    def end(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    started = Mosquitto(tmp_path)
    yield started
    started.kill()


@pytest.fixture
def listener(broker: Mosquitto) -> Iterator[Listener]:
    listening = Listener(broker.port)
    yield listening
    listening.end()


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return teach_shapes(tmp_path_factory.mktemp("mqtt") / "parts bin")


def sighting(label: str) -> Sighting:
    answer = rivals.Answer((rivals.Choice(label, "bars", 0.9),))
    return Sighting(Frame("f", b"", 1), datetime.now(timezone.utc), answer, changed=True)


def test_answers_are_published_and_labels_learned(
    taught: Path, tmp_path: Path, broker: Mosquitto, listener: Listener
) -> None:
    """The real program, a real broker, Home Assistant's messages, and its end."""
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    model = Path(shutil.copytree(taught, tmp_path / "parts bin"))
    watched = Watched(inbox, model, "--mqtt", broker.address, "--teach", "--port", "0")
    config = listener.next("homeassistant/sensor/rivals_parts_bin/label/config")
    assert config["state_topic"] == "rivals/parts_bin/answer"
    assert config["availability_topic"] == "rivals/parts_bin/status"
    assert config["device"]["name"] == "parts bin"
    other = listener.next("homeassistant/sensor/rivals_parts_bin/confidence/config")
    assert (other["unit_of_measurement"], other["device"]) == ("%", config["device"])
    assert other["unique_id"] != config["unique_id"]
    assert listener.next("rivals/parts_bin/status") == "online"

    listener.client.publish("rivals/parts_bin/label", "level")
    assert "No frame" in listener.next("rivals/parts_bin/labelled")["error"]
    (inbox / "a.png").write_bytes(png(shape("level", 200)))
    answer = listener.next("rivals/parts_bin/answer")
    assert answer["label"] == "level"
    assert answer["image"] == str(inbox / "a.png")
    for payload, words in [
        (b"\xff\xfe", "UTF-8"), (b"x" * 5000, "4,096 bytes"), (b'{"label": 3}', "no text"),
        (b"{" * 4000, "no JSON"), (b"../../etc\x1b[2J", "cannot be shown"), (b"", "cannot be"),
        (b'{"label": "level", "task": "nothing"}', "nothing"),
    ]:  # fmt: skip
        listener.client.publish("rivals/parts_bin/label", payload, 1)
        assert words in listener.next("rivals/parts_bin/labelled")["error"], payload
    listener.client.publish("rivals/parts_bin/label", '{"label": "beam", "task": "bars"}', 1)
    assert listener.next("rivals/parts_bin/labelled")["images"] == 46
    assert rivals.Model(model).tasks[0].classes == (*sorted(LABELS), "beam")
    assert watched.end() == 0
    assert listener.next("rivals/parts_bin/status") == "offline"
    assert [line for line in watched.errors if "labels" not in line] == []


def test_a_broker_that_goes_away_is_waited_for(
    broker: Mosquitto, capsys: pytest.CaptureFixture[str]
) -> None:
    sink = MqttSink(Broker.parse(broker.address), "parts", "bench/one", None)
    try:
        until(sink.client.is_connected)
        broker.kill()
        until(lambda: not sink.client.is_connected())
        began = time.monotonic()
        for number in range(3 * outbox.QUEUE):
            sink.send(sighting(str(number)))
        assert time.monotonic() - began < 2
        assert len(sink.outbox.waiting) <= outbox.QUEUE
        broker.start()
        until(sink.client.is_connected)
        last = str(3 * outbox.QUEUE - 1)
        listening = Listener(broker.port)
        until(lambda: listening.next("bench/one/answer")["label"] == last)
        listening.end()
    finally:
        sink.close()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert "cannot be reached" in lines[0]
    assert "is there again" in lines[1]


def test_the_broker_tells_when_a_watch_is_killed(
    taught: Path, tmp_path: Path, broker: Mosquitto, listener: Listener
) -> None:
    (tmp_path / "inbox").mkdir()
    watched = Watched(tmp_path / "inbox", taught, "--mqtt", broker.address, "--topic", "bench")
    assert listener.next("bench/status") == "online"
    watched.process.kill()
    assert listener.next("bench/status") == "offline"


def test_a_label_that_the_broker_kept_is_of_a_frame_long_gone(broker: Mosquitto) -> None:
    listening, taken = Listener(broker.port), list[str]()
    listening.client.publish("bench/label", "old", 1, retain=True).wait_for_publish(5)

    def label(text: str, task: str | None) -> dict[str, Any]:
        taken.append(text)
        return {}

    sink = MqttSink(Broker.parse(broker.address), "parts", "bench", label)
    listening.next("bench/status")
    time.sleep(0.3)
    listening.client.publish("bench/label", "new", 1)
    until(lambda: taken)
    sink.close()
    listening.end()
    assert taken == ["new"]


def test_a_broker_that_is_not_there_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    sink = MqttSink(Broker.parse(f"127.0.0.1:{port}"), "parts", None, None)
    time.sleep(2.5)  # two attempts
    sink.send(sighting("a"))
    began = time.monotonic()
    sink.close()
    assert time.monotonic() - began < 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert f"port {port}" in lines[0]


def test_brokers_are_named_without_a_password() -> None:
    assert Broker.parse("host") == Broker("host", 1883, None, False)
    assert Broker.parse("host:1") == Broker("host", 1, None, False)
    assert Broker.parse("mqtts://me@host") == Broker("host", 8883, "me", True)
    for wrong in ("http://host", "", "host:99999", "host/path", "mqtt://"):
        with pytest.raises(RivalsError, match="is no broker"):
            Broker.parse(wrong)
    with pytest.raises(RivalsError, match="RIVALS_MQTT_PASSWORD"):
        Broker.parse("mqtt://me:secret@host")
    for topic in ("a/#", "+", "a\nb", "x" * 300, ""):
        with pytest.raises(RivalsError, match="topic"):
            MqttSink(Broker.parse("host"), "parts", topic, None)
    assert parse_label(b" level ") == ("level", None)
