"""Meeting rooms of an office on one day; booking codes are drawn at random."""

import random
from typing import Any, Literal


class MeetingRooms:
    """Bookings of meeting rooms, in whole hours from 8 to 18 on one day."""

    def __init__(self, state: dict[str, Any] | None = None) -> None:
        self.rooms: dict[str, dict[str, Any]] = {}
        self.bookings: list[dict[str, Any]] = []
        self._codes: dict[str, str] = {}

    def find_rooms(
        self, start: int, end: int, seats: int = 1, equipment: Literal["none", "screen", "phone"] = "none"
    ) -> list[dict[str, Any]]:
        """Rooms that are free for all of the time, the smallest first.

        Args:
            start: first hour, 8 to 17.
            end: hour at which the room is free again, 9 to 18.
            seats: how many people must fit.
            equipment: what the room must have.
        """
        fit = [
            {"room": name, **room}
            for name, room in self.rooms.items()
            if room["seats"] >= seats and equipment in ("none", *room["equipment"]) and not self._clash(name, start, end)
        ]
        return sorted(fit, key=lambda room: (room["seats"], room["room"]))

    def show_day(self, room: str) -> dict[str, Any]:
        """The bookings of a room, by hour.

        Args:
            room: its name.
        """
        if room not in self.rooms:
            return {"success": False, "error": f"there is no room {room}"}
        taken = [booking for booking in self.bookings if booking["room"] == room]
        return {"success": True, "bookings": sorted(taken, key=lambda booking: booking["start"])}

    def find_bookings(self, owner: str) -> list[dict[str, Any]]:
        """Bookings of a person, by hour.

        Args:
            owner: first name.
        """
        return sorted((booking for booking in self.bookings if booking["owner"] == owner), key=lambda booking: booking["start"])

    def book(self, room: str, start: int, end: int, owner: str) -> dict[str, Any]:
        """Book a room; the answer holds a code for the door.

        Args:
            room: its name.
            start: first hour, 8 to 17.
            end: hour at which the room is free again, 9 to 18.
            owner: first name of the person it is for.
        """
        wrong = self._wrong(room, start, end)
        if wrong:
            return {"success": False, "error": wrong}
        self.bookings.append({"room": room, "start": start, "end": end, "owner": owner})
        self._sort()
        code = f"{random.randrange(10000):04d}"
        self._codes[f"{room} {start}"] = code
        return {"success": True, "code": code}

    def cancel(self, room: str, start: int) -> dict[str, Any]:
        """Cancel the booking of a room that begins at an hour.

        Args:
            room: its name.
            start: its first hour.
        """
        kept = [booking for booking in self.bookings if (booking["room"], booking["start"]) != (room, start)]
        if len(kept) == len(self.bookings):
            return {"success": False, "error": f"{room} has no booking that begins at {start}"}
        self.bookings = kept
        self._codes.pop(f"{room} {start}", None)
        return {"success": True}

    def move(self, room: str, start: int, to_room: str, to_start: int) -> dict[str, Any]:
        """Move a booking to another room or hour, for as long as before.

        Args:
            room: where it is now.
            start: its first hour now.
            to_room: where it shall be.
            to_start: its first hour then.
        """
        for booking in self.bookings:
            if (booking["room"], booking["start"]) == (room, start):
                end = to_start + booking["end"] - start
                self.bookings.remove(booking)
                wrong = self._wrong(to_room, to_start, end)
                self.bookings.append(booking if wrong else {**booking, "room": to_room, "start": to_start, "end": end})
                self._sort()
                return {"success": False, "error": wrong} if wrong else {"success": True}
        return {"success": False, "error": f"{room} has no booking that begins at {start}"}

    def _sort(self) -> None:
        self.bookings.sort(key=lambda booking: (booking["room"], booking["start"]))

    def _clash(self, room: str, start: int, end: int) -> bool:
        return any(booking["room"] == room and booking["start"] < end and start < booking["end"] for booking in self.bookings)

    def _wrong(self, room: str, start: int, end: int) -> str:
        if room not in self.rooms:
            return f"there is no room {room}"
        if not 8 <= start < end <= 18:
            return "a booking lies between 8 and 18 and ends after it begins"
        return f"{room} is taken then" if self._clash(room, start, end) else ""
