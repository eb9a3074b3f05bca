"""The ticket desk: a small world in which a policy reminds the owners of tickets that nobody has handled."""

from training.worlds.ticket_desk.world import TicketDesk

__all__ = ["TicketDesk"]
