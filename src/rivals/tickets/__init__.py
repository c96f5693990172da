"""Tickets: the small networks that ship."""

from rivals.tickets.ticket import Ticket

__all__ = ["Ticket"]
