"""A parcel depot: parcels wait on shelves until a van takes them on its round."""

from typing import Any


class ParcelDepot:
    """Parcels of a depot and the vans that take them out.

    A van carries at most its limit in kilograms and serves one zone; an express parcel leaves before any ordinary one of its zone.
    """

    def __init__(self, state: dict[str, Any] | None = None) -> None:
        self.parcels: dict[str, dict[str, Any]] = {}
        self.vans: dict[str, dict[str, Any]] = {}
        self._log: list[str] = []

    def list_parcels(self, zone: str | None = None, place: str | None = None) -> list[dict[str, Any]]:
        """Parcels in the depot, by number.

        Args:
            zone: only those for this zone.
            place: only those at this place: shelf, returned, gone, or the number of a van.
        """
        shown = [{"parcel_id": key, **parcel} for key, parcel in sorted(self.parcels.items())]
        return [parcel for parcel in shown if zone in (None, parcel["zone"]) and place in (None, parcel["place"])]

    def list_vans(self) -> list[dict[str, Any]]:
        """Vans with zone, limit and load in kilograms, and whether they have left."""
        return [{"van_id": key, **van, "load_kg": self._load(key)} for key, van in sorted(self.vans.items())]

    def load_parcel(self, parcel_id: str, van_id: str) -> dict[str, Any]:
        """Put a parcel from the shelf into a van.

        Args:
            parcel_id: such as P1.
            van_id: such as V1.
        """
        parcel, van = self.parcels.get(parcel_id), self.vans.get(van_id)
        if parcel is None or van is None:
            return {"success": False, "error": f"there is no {parcel_id if parcel is None else van_id}"}
        waiting = [
            key for key, other in self.parcels.items() if other["express"] and other["place"] == "shelf" and other["zone"] == parcel["zone"]
        ]
        for wrong, why in (
            (parcel["place"] != "shelf", f"{parcel_id} is not on the shelf but {parcel['place']}"),
            (van["left"], f"{van_id} has left"),
            (van["zone"] != parcel["zone"], f"{van_id} serves {van['zone']}, {parcel_id} goes to {parcel['zone']}"),
            (self._load(van_id) + parcel["kg"] > van["limit_kg"], f"{van_id} would carry more than {van['limit_kg']} kg"),
            (bool(waiting) and not parcel["express"], f"express parcels go first: {', '.join(sorted(waiting))}"),
        ):
            if wrong:
                return {"success": False, "error": why}
        parcel["place"] = van_id
        self._log.append(f"loaded {parcel_id} into {van_id}")
        return {"success": True, "load_kg": self._load(van_id)}

    def unload_parcel(self, parcel_id: str) -> dict[str, Any]:
        """Put a parcel from a van that has not left back on the shelf.

        Args:
            parcel_id: such as P1.
        """
        parcel = self.parcels.get(parcel_id)
        if parcel is None or parcel["place"] not in self.vans or self.vans[parcel["place"]]["left"]:
            return {"success": False, "error": f"{parcel_id} is in no van that is still here"}
        parcel["place"] = "shelf"
        self._log.append(f"unloaded {parcel_id}")
        return {"success": True}

    def correct_zone(self, parcel_id: str, zone: str) -> dict[str, Any]:
        """Change the zone of a parcel on the shelf.

        Args:
            parcel_id: such as P1.
            zone: north, south, east or west.
        """
        if zone not in ("north", "south", "east", "west"):
            return {"success": False, "error": f"zone {zone!r} is none of north, south, east, west"}
        if self.parcels.get(parcel_id, {}).get("place") != "shelf":
            return {"success": False, "error": f"{parcel_id} is not on the shelf"}
        self.parcels[parcel_id]["zone"] = zone
        return {"success": True}

    def return_to_sender(self, parcel_id: str) -> dict[str, Any]:
        """Take a parcel off the shelf for its sender.

        Args:
            parcel_id: such as P1.
        """
        if self.parcels.get(parcel_id, {}).get("place") != "shelf":
            return {"success": False, "error": f"{parcel_id} is not on the shelf"}
        self.parcels[parcel_id]["place"] = "returned"
        return {"success": True}

    def send_van(self, van_id: str) -> dict[str, Any]:
        """Let a van leave with what it carries; it cannot leave empty.

        Args:
            van_id: such as V1.
        """
        van = self.vans.get(van_id)
        if van is None or van["left"] or not self._load(van_id):
            return {"success": False, "error": f"{van_id} is not here, has left, or is empty"}
        van["left"] = True
        return {"success": True, "parcels": sorted(key for key, parcel in self.parcels.items() if parcel["place"] == van_id)}

    def _load(self, van_id: str) -> float:
        return float(sum(parcel["kg"] for parcel in self.parcels.values() if parcel["place"] == van_id))
