"""The people of a generated desk: pools of names that never meet, and owners, managers and a lead drawn from one of them. Pure."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from training.worlds.ticket_desk.state import Owner

TEAMS = ("Billing", "Field", "Support", "Network")
TIME_ZONES = ("Asia/Tokyo", "America/New_York", "Europe/Berlin", "America/Los_Angeles", "Asia/Kolkata", "Australia/Brisbane")
_NAMES = {
    "desk.example": "Ada Ben Cleo Dan Eve Finn Gus Hana / Adler Berg Costa Diaz Evans Fox Gray Holt",
    "works.example": "Ivo Jun Kim Lea Max Nia Omar Pia / Ito Jain Khan Lund Moss Ng Ortiz Park",
    "north.example": "Alva Bodo Cora Dirk Edda Falk Gesa Henk / Quist Roth Saar Thorn Ude Voss Wirth Zorn",
    "south.example": "Abel Bela Caio Dina Elio Flor Gil Hugo / Alves Braga Cruz Duarte Esteves Faro Gama Horta",
    "east.example": "Aiko Bao Chen Daiki Emi Fumi Goro Haru / Abe Bai Cho Doi Endo Fujii Goto Hara",
    "west.example": "Arlo Beth Cade Dell Earl Faye Glen Hope / Ames Boyd Cobb Dunn Ellis Ford Gibbs Hale",
}
POOLS = tuple((domain, names.partition(" / ")[0].split(), names.partition(" / ")[2].split()) for domain, names in _NAMES.items())
"""(mail domain, first names, last names); no domain and no name is in two pools."""


def draw_owners(rng: Random, *, pool: int, plain: bool, teams: Sequence[str] = ()) -> list[Owner]:
    """Three to five owners, two of whom share a first name, and unless `plain` two managers and a lead after them.

    Args:
        rng: the only source of randomness.
        pool: number of the pool of names.
        teams: teams that must have somebody.
        plain: no managers, teams, time zones or absences, and no lead.
    """
    domain, firsts, lasts = POOLS[pool]
    given, family = rng.sample(firsts, 8), rng.sample(lasts, 8)
    names = [(given[0], family[0]), (given[0], family[1]), *zip(given[1:], family[2:], strict=False)]
    count = rng.randint(3, 5) if plain else 5
    order = names[:count]
    rng.shuffle(order)
    owners = [_owner(f"O{number}", *name, domain) for number, name in enumerate(order, start=1)]
    if plain:
        return owners
    heads = [_owner(f"O{number}", *name, domain) for number, name in enumerate(names[5:8], start=6)]
    groups = [*teams, *rng.sample([team for team in TEAMS if team not in teams], len(TEAMS) - len(teams))]
    zones, away = rng.sample(TIME_ZONES, 3), rng.sample(range(5), 2)
    rich = [
        replace(row, team=groups[place % 3], time_zone=zones[place // 2], manager_id=rng.choice(heads[:2]).id, away=place in away)
        for place, row in enumerate(owners)
    ]
    return [*rich, *(replace(row, team=groups[3], time_zone=zones[0]) for row in heads)]


def _owner(owner_id: str, first: str, last: str, domain: str) -> Owner:
    return Owner(owner_id, f"{first} {last}", f"{first}.{last}@{domain}".lower())
