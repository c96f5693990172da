"""Where a ticket and pictures for it come from: the folder of a ticket, a run or a model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rivals.deploy.test_pictures import ComparisonPictures, at_random, of_data, of_stream_item
from rivals.deploy.whole_model import Whole, whole
from rivals.errors import RivalsError
from rivals.experiment.stored_run import StoredRun
from rivals.model.folder import ModelFolder
from rivals.model.folder_kind import folder_kind
from rivals.streams.picture_data import PictureData
from rivals.tickets.ticket import Ticket


@dataclass(frozen=True)
class TicketSource:
    """A ticket, and pictures of its task."""

    ticket: Ticket
    pictures: ComparisonPictures


def find(model: Path, task: str | None, images: PictureData | None = None) -> TicketSource:
    """The ticket of `task` in `model`, with the pictures in `images` or those it learned from."""
    kind = _with_tasks(model)
    if kind == "ticket":
        ticket = Ticket.load(model)
        if task is not None and task != ticket.task:
            raise RivalsError(
                f"{model} holds the ticket of '{ticket.task}', not of '{task}'; leave out --task."
            )
        pictures = of_data(images, ticket) if images is not None else at_random(ticket)
        return TicketSource(ticket, pictures)
    if kind == "model":
        learned = ModelFolder.open(model)
        ticket = learned.ticket(_chosen(model, task, [each.name for each in learned.tasks]))
        return TicketSource(
            ticket, of_data(images, ticket) if images is not None else at_random(ticket)
        )
    run = StoredRun(model)
    task = _chosen(model, task, run.tasks)
    ticket = run.ticket(task)
    return TicketSource(
        ticket, of_data(images, ticket) if images is not None else of_stream_item(run.item(task))
    )


def _with_tasks(folder: Path) -> str:
    """The kind of a folder that has tasks to export."""
    kind = folder_kind(folder)
    if kind == "ancestor":
        raise RivalsError(
            f"{folder} holds an ancestor, which has no task to export; name the folder of a model, "
            "a run or a ticket."
        )
    return kind


def _chosen(model: Path, task: str | None, tasks: list[str]) -> str:
    """The task to export: that which is named, or the only one."""
    if task is None and len(tasks) == 1:
        return tasks[0]
    if task is None:
        raise RivalsError(
            f"{model} holds {len(tasks) or 'no'} tasks; choose one with --task "
            f"({', '.join(tasks)}), or all of them with --all-tasks."
        )
    return task


def find_whole(model: Path) -> Whole:
    """Every task of a model or a run, with the pictures that a run learned from."""
    kind = _with_tasks(model)
    if kind == "ticket":
        raise RivalsError(
            f"{model} holds one ticket, but --all-tasks takes a model; name the folder of a model "
            "or of a run."
        )
    if kind == "model":
        learned = ModelFolder.open(model)
        learned.predictor()  # refuses what does not fit into memory
        noise = {each.name: at_random(learned.ticket(each.name)) for each in learned.tasks}
        content = learned.description
        return whole(learned.method, content.input_shape, noise, content.sound)
    run = StoredRun(model)
    method = run.method()
    tasks = [task for task in run.tasks if task in method.known]
    pictures = {task: of_stream_item(run.item(task)) for task in tasks}
    return whole(method, run.stream.input_shape, pictures, run.stream.sound)
