"""`rivals watch`: answers for a folder, a video or a camera, as lines, by MQTT or a webhook."""

from __future__ import annotations

import gc
import sys
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rivals.cli.echo import echo_json
from rivals.cli.options import SignatureOption, ThreadsOption, check_threads
from rivals.cli.stop_signals import StopRequest
from rivals.errors import RivalsError

if TYPE_CHECKING:
    from rivals.watch.label_server import LabelServer
    from rivals.watch.watcher import Watcher

TEACHING_PORT = 8018


def watch(
    source: Annotated[
        str,
        typer.Argument(
            help="A folder of pictures, a video file, the number of a camera or /dev/videoN, or an "
            "address of rtsp or http."
        ),
    ],
    model: Annotated[Path, typer.Option(help="Folder of the model.")],
    task: Annotated[str | None, typer.Option(help="The task; default: the model finds it.")] = None,
    reject: Annotated[
        float | None,
        typer.Option(metavar="P", help="Answer 'none of these' for unfamiliar pictures."),
    ] = None,
    pool: Annotated[
        bool | None,
        typer.Option(
            "--pool/--alone",
            help="Whether the last frames answer together; default: those of videos and cameras.",
        ),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="End with the last picture that is in the folder now.")
    ] = False,
    fps: Annotated[
        float | None,
        typer.Option(help="Frames a second at most; default: all of a video, 10 of a camera."),
    ] = None,
    mqtt: Annotated[
        str | None,
        typer.Option(
            metavar="HOST[:PORT]",
            help="Publish to an MQTT broker: [mqtts://][USER@]HOST[:PORT]; the password is in "
            "$RIVALS_MQTT_PASSWORD.",
        ),
    ] = None,
    topic: Annotated[
        str | None, typer.Option(help="With --mqtt: the topic; default: rivals/MODEL.")
    ] = None,
    webhook: Annotated[
        str | None, typer.Option(metavar="URL", help="Post to this address when the class changes.")
    ] = None,
    sort: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Move each picture to FOLDER/TASK/CLASS."),
    ] = None,
    teach: Annotated[
        bool,
        typer.Option("--teach", help="Learn the last frame when POST /label, or MQTT, names it."),
    ] = False,
    host: Annotated[str, typer.Option(help="With --teach: address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="With --teach: port; 0 chooses a free one.")
    ] = TEACHING_PORT,
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with a token of your own; otherwise $RIVALS_TOKEN, or a new one."),
    ] = None,
    require_signature: SignatureOption = None,
    threads: ThreadsOption = 1,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print lines of JSON, also beside MQTT, webhook or --sort."),
    ] = False,
) -> int:
    """Answer every frame of SOURCE, until it ends or a signal comes."""
    check_threads(threads)
    if teach and require_signature is not None:
        raise RivalsError(
            "--teach changes the model, which takes its signature away; leave out "
            "--require-signature, or do not teach."
        )
    if topic is not None and mqtt is None:
        raise RivalsError("--topic is for --mqtt; name a broker with it.")
    if teach and find_spec("uvicorn") is None:
        raise RivalsError("--teach needs uvicorn, not installed here; run pip install "
                          "'rivals[web]'.")  # fmt: skip
    from rivals.watch.find_source import find_source

    gc.disable()  # the many objects of these imports all stay; looking for others takes 0.1 s
    import torch

    from rivals.io.process_memory import return_freed_blocks
    from rivals.model.model import Model
    from rivals.watch.answer_lines import AnswerLines
    from rivals.watch.class_folders import ClassFolders
    from rivals.watch.mqtt_sink import Broker, MqttSink
    from rivals.watch.watcher import Watcher
    from rivals.watch.webhook import WebhookSink

    gc.freeze()
    gc.enable()
    torch.set_num_threads(threads)
    folder, stop = Path(source).is_dir(), StopRequest()
    if sort is not None and not folder:
        raise RivalsError("--sort moves files, so SOURCE must be a folder.")
    together = not folder if pool is None else pool
    broker = None if mqtt is None else Broker.parse(mqtt)
    with stop, ExitStack() as open_parts:
        frames = find_source(source, stop.asked, once=once, fps=fps)
        opened = Model(model, require_signature=require_signature)
        watcher = Watcher(opened, task=task, reject=reject, together=together)
        open_parts.callback(watcher.close)
        if as_json or not (mqtt or webhook or sort):
            watcher.sinks.append(AnswerLines(sys.stdout))
        if sort is not None:
            watcher.sinks.append(ClassFolders(sort))
        if webhook is not None:
            watcher.sinks.append(WebhookSink(webhook))
        if teach:
            server = _label_server(watcher, host, port, token_file)
            open_parts.callback(server.close)
            server.start()
        if broker is not None:
            label = watcher.label if teach else None
            watcher.sinks.append(MqttSink(broker, model.resolve().name, topic, label))
        return_freed_blocks()
        watcher.run(frames)
    return 0


def _label_server(watcher: Watcher, host: str, port: int, token_file: Path | None) -> LabelServer:
    from rivals.watch.label_server import LabelServer

    server = LabelServer(watcher, host, port, token_file)
    echo_json({"labels": server.address.url}, err=True)
    return server
