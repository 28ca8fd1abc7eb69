"""The sentences of a town hall: where one stands, how one opens, how others are answered."""

from __future__ import annotations

SIDE = {
    "strong_support": (
        "I am firmly for this.",
        "For my part I say: go ahead.",
        "I am for it, and gladly.",
    ),
    "support": (
        "On the whole I am for it.",
        "I would be for it, with some care.",
        "I am in favour, by and large.",
    ),
    "neutral": (
        "I have not made up my mind yet.",
        "I could go either way.",
        "I am still weighing it.",
    ),
    "oppose": (
        "As it stands I am against it.",
        "I am against the plan in this form.",
        "Not like this, if you ask me.",
    ),
    "strong_oppose": (
        "I am firmly against it.",
        "I stay against it, and I will say so again.",
        "No, not like this.",
    ),
}
LEAD = (
    "Let me say it plainly: {L}.",
    "{L}.",
    "I keep thinking that {L}.",
    "From where I stand, {L}.",
    "One thing above all: {L}.",
    "Remember, please, that {L}.",
    "I say again that {L}.",
    "I can only speak for my household, but {L}.",
    "It comes down to this, that {L}.",
    "You may not like to hear it, but {L}.",
    "I have lived here long enough to know that {L}.",
    "If you ask me, {L}.",
    "Somebody has to say that {L}.",
    "As I see it, {L}.",
)
ANSWER: dict[str, tuple[str, ...]] = {
    "agree": (
        "{T} is right about {X}.",
        "I agree with {T} on {X}.",
        "What {T} said about {X} is what I see too.",
        "I am with {T} when it comes to {X}.",
    ),
    "partial_agree": (
        "{T} has a point about {X}, though I would not go that far.",
        "I go along with {T} on {X}, up to a point.",
        "Part of what {T} says on {X} holds for me too.",
    ),
    "cite": (
        "{T} brought up {X}.",
        "As {T} mentioned, there is {X}.",
        "We have heard {T} on {X}.",
    ),
    "disagree": (
        "I do not agree with {T} about {X}.",
        "{T} sees {X} quite differently from me.",
        "I cannot follow {T} on {X}.",
        "With respect, {T} leaves out half of it when it comes to {X}.",
    ),
    "question": (
        "{T}, what exactly do you mean about {X}?",
        "I would like to ask {T} how {X} is to work.",
        "{T}, who is to see to {X}?",
    ),
}
WHY = {
    True: (
        "It is what I live with as well.",
        "It fits with what I know of this place.",
        "They say what others only think.",
        "It concerns me directly.",
        "It is fair and it can be done.",
    ),
    False: (
        "It leaves out those who would pay for it.",
        "That is not how it looks from my door.",
        "It promises more than anyone can keep.",
        "It would help a few and cost the rest.",
        "I see no sign that it would come out that way.",
    ),
    None: (
        "I can see it both ways.",
        "I do not know enough about it.",
        "It does not touch me much.",
    ),
}
