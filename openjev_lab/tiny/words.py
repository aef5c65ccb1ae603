"""What the tiny language can settle: attributes, their values, and the sentences that give a value away.

Only data and two frozen classes; ``language`` makes requests of it and of ``filler``. Apart so that what a reader wants
to change, or to check for realism, is in one place. ``{name}`` and ``{thing}`` are slots that ``language`` fills.

One rule keeps the labels true: evidence for one attribute says nothing about another.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Value:
    """One value of an attribute."""

    name: str
    """The word that answers "what is it?"."""
    meaning: str
    """What it stands for, as a client would describe an option or level."""
    evidence: tuple[str, ...]
    """Sentences each of which is enough to tell this value."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """Something that a context can settle. ``{v}`` in a template is a value's name."""

    name: str
    values: tuple[Value, ...]
    yes_no: tuple[str, ...]
    """Questions that a noul asks."""
    which: tuple[str, ...]
    """Questions that a value's name answers; a choice or score asks them too."""
    claims: tuple[str, ...]
    """Statements that are true or false."""
    ordered: bool = False
    """Whether the values are levels, lowest first."""


def _rule(subject: str) -> Attribute:
    """What the house rules say about one subject; a context often holds several, so the subject must be found."""
    capital = subject.capitalize()
    allowed = (f"{capital} are allowed here.", f"The rules permit {subject}.", f"You may bring {subject}.")
    banned = (f"{capital} are not allowed here.", f"The rules forbid {subject}.", f"You may not bring {subject}.")
    return Attribute(
        name=subject,
        values=(Value("allowed", "the rules permit it", allowed), Value("banned", "the rules forbid it", banned)),
        yes_no=(f"Are {subject} {{v}}?", f"Do the rules say that {subject} are {{v}}?"),
        which=(f"Are {subject} allowed or banned?", f"What do the rules say about {subject}?"),
        claims=(f"{capital} are {{v}}.", f"By the rules {subject} are {{v}}."),
    )


TOPIC = Attribute(
    name="topic",
    values=(
        Value(
            "billing",
            "cards, fees and invoices",
            (
                "My card was charged twice.",
                "The invoice shows a wrong amount.",
                "Nobody told {name} about the extra fee.",
                "The same payment was taken again.",
            ),
        ),
        Value(
            "delivery",
            "parcels on their way",
            (
                "The parcel has not arrived.",
                "The courier left the {thing} at the wrong door.",
                "The box is still on the road.",
                "The driver could not find our house.",
            ),
        ),
        Value(
            "access",
            "passwords and locked accounts",
            (
                "My password does not work.",
                "The login page shows an error.",
                "{name} is locked out.",
                "The code to sign in never comes.",
            ),
        ),
        Value(
            "repair",
            "things that do not work",
            (
                "The {thing} does not start.",
                "The {thing} makes a loud noise and stops.",
                "A part of the {thing} came loose.",
                "The {thing} gets too hot.",
            ),
        ),
        Value(
            "returns",
            "items that go back",
            (
                "I want to send the {thing} back.",
                "The {thing} has the wrong colour and goes back.",
                "How do I give the {thing} back?",
                "The {thing} is too big for me, please take it back.",
            ),
        ),
        Value(
            "privacy",
            "personal data",
            (
                "Please delete my personal data.",
                "A stranger can see my address.",
                "Who can read what I wrote about my health?",
                "My data was shared and I did not agree.",
            ),
        ),
    ),
    yes_no=("Is this about {v}?", "Is {v} the topic?", "Does the message concern {v}?"),
    which=("What is this about?", "Which topic is this?"),
    claims=("This is about {v}.", "The topic is {v}."),
)
MOOD = Attribute(
    name="mood",
    values=(
        Value("angry", "shouts or threatens", ("I am furious.", "This is an outrage.", "I have had enough of you.")),
        Value("worried", "is afraid of what comes", ("I am afraid.", "I lie awake over this.", "I fear the worst.")),
        Value("calm", "asks without any trouble", ("I only ask out of interest.", "I am not upset.", "All is well.")),
        Value("happy", "thanks or praises", ("Thank you so much!", "You were great.", "I could not be more pleased.")),
    ),
    yes_no=("Is the customer {v}?", "Does the writer sound {v}?", "Is the mood {v}?"),
    which=("How does the customer feel?", "What is the mood?"),
    claims=("The customer is {v}.", "The mood is {v}."),
    ordered=True,
)
URGENCY = Attribute(
    name="urgency",
    values=(
        Value("low", "can wait for months", ("There is no hurry.", "Next month is soon enough.", "Take all the time.")),
        Value("normal", "within the week", ("Please look at it this week.", "A few days are fine.", "Friday will do.")),
        Value("high", "before tomorrow", ("It must be done by tonight.", "We need it today.", "Tomorrow is too late.")),
        Value("critical", "at once", ("Every minute counts.", "Act now or we close.", "Drop all else and help.")),
    ),
    yes_no=("Is the urgency {v}?", "Is this of {v} urgency?", "Would you call the urgency {v}?"),
    which=("How urgent is it?", "What is the urgency?"),
    claims=("The urgency is {v}.", "This is of {v} urgency."),
    ordered=True,
)
DAMAGE = Attribute(
    name="damage",
    values=(
        Value("none", "as good as new", ("There is not a scratch on it.", "The {thing} looks like new.")),
        Value("light", "marks that one can see", ("One corner is bent.", "There is a thin line on the glass.")),
        Value("heavy", "parts are gone", ("Half of it is smashed.", "Two legs of the {thing} broke off.")),
        Value("total", "nothing can be saved", ("Only dust is left of it.", "The fire took the whole {thing}.")),
    ),
    yes_no=("Is the damage {v}?", "Would you call the damage {v}?"),
    which=("How bad is the damage?", "What is the damage?"),
    claims=("The damage is {v}.", "One can call the damage {v}."),
    ordered=True,
)
PLAN = Attribute(
    name="plan",
    values=(
        Value("free", "costs nothing", ("The account is on the free plan.", "{name} uses the version without cost.")),
        Value("basic", "the small paid plan", ("The account is on the basic plan.", "{name} has the cheapest plan.")),
        Value("premium", "the full plan", ("The account is on the premium plan.", "{name} pays for every feature.")),
    ),
    yes_no=("Is the plan {v}?", "Is the account on the {v} plan?"),
    which=("Which plan is it?", "What plan is the account on?"),
    claims=("The plan is {v}.", "The account is on the {v} plan."),
)
CHANNEL = Attribute(
    name="channel",
    values=(
        Value("phone", "a call", ("The customer rang the desk.", "It came in as a call.", "We spoke for ten minutes.")),
        Value("email", "a mail with a subject", ("The subject line was empty.", "It came in as an email.")),
        Value("chat", "the window on the site", ("The chat window was open.", "It came in as a chat.")),
    ),
    yes_no=("Was the channel {v}?", "Did it come in by {v}?"),
    which=("Which channel was it?", "How did it come in?"),
    claims=("The channel was {v}.", "It came in by {v}."),
)
STATUS = Attribute(
    name="status",
    values=(
        Value("approved", "signed", ("The manager signed it.", "The request was granted.", "The board said yes.")),
        Value(
            "refused", "turned down", ("The manager said no.", "The request was turned down.", "The board blocked it.")
        ),
        Value("pending", "not decided", ("The manager has not decided.", "The request waits for an answer.")),
    ),
    yes_no=("Is the request {v}?", "Is the status {v}?"),
    which=("What is the status?", "What happened to the request?"),
    claims=("The request is {v}.", "The status is {v}."),
)
CITY = Attribute(
    name="city",
    values=tuple(
        Value(city, f"the store in {city}", (f"It left the {city} store.", f"The {{thing}} is kept in {city}."))
        for city in ("Lisbon", "Oslo", "Cairo", "Lima", "Delhi", "Perth")
    ),
    yes_no=("Is the city {v}?", "Is it the {v} store?"),
    which=("Which city is it?", "Which store is it?"),
    claims=("The city is {v}.", "It is the {v} store."),
)
TEAM = Attribute(
    name="team",
    values=tuple(
        Value(team, work, (f"The case lies with {team}.", f"{{name}} from {team} took the case."))
        for team, work in (
            ("sales", "offers and prices"),
            ("support", "help for customers"),
            ("legal", "contracts and courts"),
            ("design", "how things look"),
        )
    ),
    yes_no=("Is the team {v}?", "Does {v} have the case?"),
    which=("Which team is it?", "Who has the case?"),
    claims=("The team is {v}.", "The case is with {v}."),
)
SUBJECTS = ("pets", "guests", "bikes", "snacks", "photos", "radios", "candles", "drones")
CASE = (TOPIC, MOOD, URGENCY, DAMAGE, PLAN, CHANNEL, STATUS, CITY, TEAM)
"""What a message or a case file settles."""
RULES = tuple(map(_rule, SUBJECTS))
"""What house rules settle. Two in one state can disagree, which is the hardest thing that is asked."""
