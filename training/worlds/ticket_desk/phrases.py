"""How five voices say each construct of the rule language; a voice is a wording of its own, with its own order of sentences. Pure."""

VOICES = ("brief", "plain", "list", "chatty", "policy")
"""The first three are for training, the fourth for validation, the last for test."""

CLAUSES: dict[str, tuple[str, str, str, str, str]] = {
    "priority": ("have priority {x}", "are {x}", "are of priority {x}", "are marked {x}", "have {x} as their priority"),
    "status": ("have status {x}", "are {x}", "are in status {x}", "stand at {x}", "have {x} as their status"),
    "not status": (
        "do not have status {x}", "are not {x}", "are in any status but {x}", "do not stand at {x}", "have a status other than {x}",
    ),
    "tag": ("carry the tag {x}", "are tagged {x}", "have {x} among their tags", "come with a {x} tag", "bear the tag {x}"),
    "not tag": ("do not carry the tag {x}", "are not tagged {x}", "lack the tag {x}", "come without a {x} tag", "do not bear the tag {x}"),
    "team": (
        "belong to somebody of team {x}", "are owned by the {x} team", "have an owner in {x}", "lie with people from {x}",
        "have an owner whose team is {x}",
    ),
    "not team": (
        "belong to nobody of team {x}", "are not owned by the {x} team", "have an owner outside {x}",
        "lie with people who are not from {x}",
        "have an owner whose team is not {x}",
    ),
    "away": (
        "have an owner who is away", "belong to people who are away", "have an absent owner", "lie with somebody who is not in",
        "have an owner marked as away",
    ),
    "not away": (
        "have an owner who is not away", "belong to people who are there", "have an owner who is present", "lie with somebody who is in",
        "have an owner not marked as away",
    ),
    "reminded": (
        "were reminded before", "have been reminded already", "have a reminder time", "somebody was reminded of before",
        "have a last_reminded_at",
    ),
    "not reminded": (
        "were never reminded", "have not been reminded yet", "have no reminder time", "nobody was ever reminded of",
        "have an empty last_reminded_at",
    ),
    "earlier_month": (
        "were opened in an earlier month than this one", "are from before this month", "have an opening date before the current month",
        "came in before this month began", "have an opening month earlier than the current one",
    ),
    "last_day": (
        "were opened on the last day of a month", "are from the last day of some month", "have a month's last day as their opening date",
        "came in on a month's last day", "have an opening date that is the last of its month",
    ),
    "load over": (
        "belong to owners with more than {x} tickets in status open", "are owned by people who have over {x} open tickets",
        "have an owner holding more than {x} open tickets", "lie with people who have more than {x} open ones",
        "have an owner whose number of open tickets is above {x}",
    ),
    "load at_least": (
        "belong to owners with {x} or more tickets in status open", "are owned by people who have at least {x} open tickets",
        "have an owner holding {x} or more open tickets", "lie with people who have no fewer than {x} open ones",
        "have an owner whose number of open tickets is {x} or above",
    ),
    "opened over": (
        "were opened more than {x} ago", "are older than {x}", "have been there for longer than {x}", "came in over {x} ago",
        "have an age above {x}",
    ),
    "opened at_least": (
        "were opened {x} ago or earlier", "are {x} old or older", "have been there for {x} or longer", "came in {x} ago or before that",
        "have an age of {x} or above",
    ),
    "opened under": (
        "were opened less than {x} ago", "are younger than {x}", "have been there for less than {x}", "came in under {x} ago",
        "have an age below {x}",
    ),
    "opened at_most": (
        "were opened {x} ago or later", "are {x} old or younger", "have been there for {x} at most", "came in no more than {x} ago",
        "have an age of {x} or below",
    ),
    "opened past": ("have reached {x}", "are past {x}", "have been there for {x}", "came in {x} back", "have an age from {x}"),
    "opened within": (
        "are within {x}", "are up to {x} old", "have been there for up to {x}", "came in the last {x}", "have an age up to {x}",
    ),
    "assigned over": (
        "have been with their present owner for more than {x}", "have had the same owner for longer than {x}",
        "stay with their owner for longer than {x}", "got their owner over {x} ago", "have a time with their owner above {x}",
    ),
    "assigned at_least": (
        "have been with their present owner for {x} or more", "have had the same owner for {x} or longer",
        "stay with their owner for {x} or longer", "got their owner {x} ago or before that", "have a time with their owner of {x} or above",
    ),
    "assigned under": (
        "have been with their present owner for less than {x}", "have had the same owner for less than {x}",
        "stay with their owner for less than {x}", "got their owner under {x} ago", "have a time with their owner below {x}",
    ),
    "assigned at_most": (
        "have been with their present owner for {x} at most", "have had the same owner for no longer than {x}",
        "stay with their owner for {x} at most", "got their owner no more than {x} ago", "have a time with their owner of {x} or below",
    ),
    "assigned past": (
        "have been with their present owner for {x}", "have had the same owner {x}", "stay with their owner for {x}",
        "got their owner {x} back", "have a time with their owner from {x}",
    ),
    "assigned within": (
        "have been with their present owner up to {x}", "have had the same owner up to {x}", "stay with their owner up to {x}",
        "got their owner in the last {x}", "have a time with their owner up to {x}",
    ),
    "cooldown under": (
        "were reminded less than {x} ago", "had a reminder in the last {x} (exactly {x} ago is long enough)",
        "have a reminder younger than {x}", "got a reminder under {x} ago", "have a last_reminded_at less than {x} back",
    ),
    "cooldown at_most": (
        "were reminded {x} ago or less", "had a reminder in the last {x} (exactly {x} ago is still too recent)",
        "have a reminder that is {x} old or younger", "got a reminder no more than {x} ago", "have a last_reminded_at at most {x} back",
    ),
}  # fmt: skip
ZONES: dict[str, tuple[str, str, str, str, str]] = {
    "desk": (
        " by the desk's dates", " (dates of the desk's time zone)", " in the desk's time zone", " going by the desk's calendar",
        " with dates in the desk's time zone",
    ),
    "owner": (
        " by the owner's dates", " (dates of the owner's time zone)", " in the owner's time zone", " going by the owner's calendar",
        " with dates in the owner's time zone",
    ),
}  # fmt: skip
STEPS: dict[str, tuple[str, str, str, str, str]] = {
    "mail owner": ("mail its owner", "send its owner a mail", "mail to the owner", "drop its owner a mail", "a mail goes to its owner"),
    "mail manager": (
        "mail its owner's manager", "send the manager of its owner a mail", "mail to the owner's manager",
        "drop its owner's manager a mail",
        "a mail goes to the manager of its owner",
    ),
    "mail lead": (
        "mail the desk's lead", "send the lead of the desk a mail", "mail to the desk's lead", "drop the desk's lead a mail",
        "a mail goes to the lead of the desk",
    ),
    "mail someone": (
        "escalate it by mail", "send a mail to escalate it", "mail to escalate", "drop a mail up the line", "a mail goes up for escalation",
    ),
    "reminded": (
        "set last_reminded_at to the time of the reminder", "write the time to last_reminded_at", "last_reminded_at: the time of it",
        "note in last_reminded_at when that was", "the time is recorded in last_reminded_at",
    ),
    "status": ("set its status to {x}", "put it to {x}", "status: {x}", "switch its status to {x}", "its status becomes {x}"),
    "priority": ("set its priority to {x}", "make it {x}", "priority: {x}", "bump its priority to {x}", "its priority becomes {x}"),
    "hand manager": (
        "hand it to its owner's manager", "make its owner's manager the owner", "new owner: the owner's manager",
        "pass it on to its owner's manager", "ownership goes to its owner's manager",
    ),
    "hand lead": (
        "hand it to the desk's lead", "make the desk's lead the owner", "new owner: the desk's lead", "pass it on to the desk's lead",
        "ownership goes to the desk's lead",
    ),
    "tag": ("add the tag {x}", "tag it {x} as well", "further tag: {x}", "stick a {x} tag on it", "the tag {x} is added"),
    "note": ("set its note to '{x}'", "replace its note by '{x}'", "note: '{x}'", "write '{x}' as its note", "its note becomes '{x}'"),
}  # fmt: skip
CAPS: dict[str, str] = {"oldest": "those opened first", "newest": "those opened last", "most_urgent": "the most urgent, then the oldest"}
FRAMES: tuple[dict[str, str], ...] = (
    {
        "main": "Find the tickets that {when}. For each, {steps}.", "unless": "Leave out those that {x}.",
        "tier": "For those that {x}, instead {steps}.", "cap": "Take at most {n} of one owner: {order}.",
        "digest": "Send every recipient one mail about all tickets together.", "end": "Touch nothing else.",
        "order": "main unless cooldown tier cap digest end",
    },
    {
        "main": "Then handle every ticket left among those that {when}: {steps}.", "unless": "First set aside tickets that {x}.",
        "tier": "Where they {x}, do this in place of it: {steps}.", "cap": "No owner gets more than {n} of these; pick {order}.",
        "digest": "Everybody is written to once, with all tickets in that one mail.", "end": "Change nothing beyond that.",
        "order": "unless cooldown main tier cap digest end",
    },
    {
        "main": "Tickets: that {when}.\nTo do for each: {steps}.", "unless": "Not: tickets that {x}.",
        "tier": "Other to do if they {x}: {steps}.", "cap": "Limit for each owner: {n} ({order}).",
        "digest": "Mails: one a recipient, about all tickets.", "end": "Nothing else changes.",
        "order": "main tier unless cooldown cap digest end",
    },
    {
        "main": "Could you look after the tickets that {when}? Please {steps} for each one.", "unless": "Oh, and skip the ones that {x}.",
        "tier": "The ones that {x} are different: {steps}, and not the above.", "end": "Leave the rest as it is, thanks!",
        "cap": "Don't do more than {n} for the same owner, {order}.", "order": "main cap tier unless cooldown digest end",
        "digest": "And please put everything for one person into a single mail.",
    },
    {
        "main": "It applies to tickets that {when}, and for each of them {steps}.", "unless": "Exempt are tickets that {x}.",
        "tier": "Where tickets {x}, this replaces it: {steps}.", "cap": "It covers {n} at most for one owner, namely {order}.",
        "digest": "One mail a recipient names all tickets.", "end": "Nothing else is altered.",
        "order": "digest cap cooldown unless main tier end",
    },
)  # fmt: skip
