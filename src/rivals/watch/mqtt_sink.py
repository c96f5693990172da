"""A sink that publishes to an MQTT broker, and takes labels from it.

    TOPIC/answer     what is seen, whenever it changes; retained
    TOPIC/status     online or offline; retained, and the broker says offline if we vanish
    TOPIC/label      to us: what the last frame shows, as text or as {"label": …, "task": …}
    TOPIC/labelled   what came of it

Home Assistant finds the sensor by itself. The client of paho connects again by itself; one message
at a time is on its way, so that they arrive in their order.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from rivals.errors import RivalsError
from rivals.watch.frame import WAIT, Notices, Sighting
from rivals.watch.outbox import QUEUE, Outbox

PASSWORD = "RIVALS_MQTT_PASSWORD"  # environment variable; a command line can be read by all
PORT, PORT_TLS = 1883, 8883
LONGEST_PAUSE = 30  # seconds between two attempts to connect
CONNECT_SECONDS = 3.0
MOST_BYTES = 4096  # of a label with its task
DISCOVERY = "homeassistant"  # where Home Assistant looks
TOPIC = re.compile(r"[\w./ -]{1,200}")
Label = Callable[[str, str | None], dict[str, Any]]


@dataclass(frozen=True)
class Broker:
    """Where a broker is, and who we are there."""

    host: str
    port: int
    user: str | None
    encrypted: bool

    @classmethod
    def parse(cls, text: str) -> Broker:
        """[mqtt://|mqtts://][USER@]HOST[:PORT]"""
        words = text if "://" in text else f"mqtt://{text}"
        try:
            parts = urlsplit(words)
            port = parts.port
        except ValueError:
            parts, port = urlsplit(""), None
        if parts.scheme not in ("mqtt", "mqtts") or not parts.hostname or parts.path.strip("/"):
            raise RivalsError("--mqtt is no broker; write it as HOST or HOST:PORT, with mqtts:// "
                              "before it for one that is encrypted.")  # fmt: skip
        if parts.password is not None:
            raise RivalsError(f"--mqtt holds a password, which others could read; put it into "
                              f"${PASSWORD}.")  # fmt: skip
        encrypted = parts.scheme == "mqtts"
        port = port or (PORT_TLS if encrypted else PORT)
        return cls(parts.hostname, port, parts.username, encrypted)


class MqttSink:
    """Publishes answers to a broker. With `label`, messages to TOPIC/label teach."""

    def __init__(self, broker: Broker, name: str, topic: str | None, label: Label | None) -> None:
        if find_spec("paho") is None:
            raise RivalsError(
                "--mqtt needs paho-mqtt, which is not installed here; run "
                "pip install 'rivals[watch]'."
            )
        from paho.mqtt import client as paho
        from paho.mqtt.enums import CallbackAPIVersion

        self.id = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:60] or "model"
        self.topic = f"rivals/{self.id}" if topic is None else topic.strip("/")
        if TOPIC.fullmatch(self.topic) is None:
            raise RivalsError(
                "--topic may have letters, digits, spaces and /._- and at most 200 of them; "
                "change it."
            )
        self.broker, self.name, self.label = broker, name, label
        self.notices, self._last = Notices(), b""
        client = paho.Client(
            CallbackAPIVersion.VERSION2, client_id=f"rivals-{self.id}-{os.getpid()}"
        )
        self.client: Any = client
        client.max_queued_messages_set(QUEUE)
        client.reconnect_delay_set(1, LONGEST_PAUSE)
        client.connect_timeout = CONNECT_SECONDS
        client.will_set(f"{self.topic}/status", "offline", 1, True)
        if broker.user is not None:
            client.username_pw_set(broker.user, os.environ.get(PASSWORD))
        if broker.encrypted:
            client.tls_set()
        client.on_connect = self._connected
        client.on_connect_fail = self._not_connected
        client.on_disconnect = self._disconnected
        client.on_message = self._message
        self.outbox = Outbox("mqtt", self._deliver)
        client.connect_async(broker.host, broker.port)
        client.loop_start()

    def send(self, sighting: Sighting) -> None:
        if sighting.changed:
            self._last = json.dumps(sighting.to_dict()).encode()
            self.outbox.put(self._last)

    def _deliver(self, body: bytes) -> None:
        if not self.client.is_connected():
            raise ConnectionError
        sent = self._publish("answer", body, retain=True)
        if sent.rc:
            raise ConnectionError
        while not sent.is_published() and not self.outbox.ending:
            sent.wait_for_publish(WAIT)  # paho sends it again after an interruption

    def close(self) -> None:
        self.outbox.close()
        if self.client.is_connected():
            sent = self._publish("status", "offline", retain=True)
            sent.wait_for_publish(1.0)
        self.client.disconnect()
        if self.client.is_connected():
            self.client.loop_stop()

    def _publish(self, place: str, text: str | bytes, retain: bool = False) -> Any:
        return self.client.publish(f"{self.topic}/{place}", text, 1, retain)

    # Called by the thread of paho --------------------------------------------------------------

    def _connected(self, client: Any, data: Any, flags: Any, code: Any, properties: Any) -> None:
        if code.is_failure:
            self._trouble(str(code).lower())
            return
        self.notices.well(f"The broker {self.broker.host} is there again.")
        for part, config in self.discovery().items():
            place = f"{DISCOVERY}/sensor/rivals_{self.id}/{part}/config"
            client.publish(place, json.dumps(config), 1, True)
        self._publish("status", "online", retain=True)
        if self._last and not self.outbox.waiting:  # the broker may have forgotten it
            self.outbox.put(self._last)
        self.outbox.wake()
        if self.label is not None:
            client.subscribe(f"{self.topic}/label", 1)

    def _not_connected(self, client: Any, data: Any) -> None:
        self._trouble("no connection")

    def _disconnected(self, client: Any, data: Any, flags: Any, code: Any, properties: Any) -> None:
        if code.is_failure:
            self._trouble(str(code).lower())

    def _trouble(self, why: str) -> None:
        self.notices.trouble(
            f"The broker {self.broker.host}, port {self.broker.port}, cannot be reached ({why}); "
            f"up to {QUEUE} answers are kept for it."
        )

    def _message(self, client: Any, data: Any, message: Any) -> None:
        if message.retain or self.label is None:
            return  # said of a frame that is long gone
        try:
            found = self.label(*parse_label(message.payload))
        except RivalsError as error:
            found = {"error": str(error)}
        self._publish("labelled", json.dumps(found))

    def discovery(self) -> dict[str, dict[str, Any]]:
        """What Home Assistant has to know: a sensor for the class, and one for the confidence."""
        from rivals import __version__

        device = {"identifiers": [f"rivals_{self.id}"], "name": self.name[:100],
                  "manufacturer": "rivals", "sw_version": __version__}  # fmt: skip
        common = {
            "state_topic": f"{self.topic}/answer", "availability_topic": f"{self.topic}/status",
            "device": device,
        }  # fmt: skip
        label = {
            **common, "name": "Class", "unique_id": f"rivals_{self.id}_label",
            "value_template": "{{ value_json.label or 'none of these' }}",
            "json_attributes_topic": f"{self.topic}/answer", "icon": "mdi:eye",
        }  # fmt: skip
        confidence = {
            **common, "name": "Confidence", "unique_id": f"rivals_{self.id}_confidence",
            "value_template": "{{ (100 * value_json.confidence) | round(1) }}",
            "unit_of_measurement": "%", "state_class": "measurement",
        }  # fmt: skip
        return {"label": label, "confidence": confidence}


def parse_label(payload: bytes) -> tuple[str, str | None]:
    """A label and its task, from text or from an object of JSON."""
    if len(payload) > MOST_BYTES:
        raise RivalsError(f"A label has at most {MOST_BYTES:,} bytes; this one has more.")
    try:
        text = payload.decode()
    except UnicodeDecodeError as error:
        raise RivalsError("A label is text in UTF-8; this one is not.") from error
    if not text.lstrip().startswith("{"):
        return text.strip(), None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RivalsError('The label is no JSON; write {"label": …}, or its name alone.') from error
    label, task = found.get("label"), found.get("task")
    if not isinstance(label, str) or not (task is None or isinstance(task, str)):
        raise RivalsError('The label has no text; write {"label": …, "task": …} with names.')
    return label, task
