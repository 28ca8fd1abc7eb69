"""Sentences of the embedded respondent: frames by voice, filled with argument phrases.

`Tongue` is one reply's speaker: it draws frames and phrases, and avoids what was said before in the
same conversation.
"""

from __future__ import annotations

from collections.abc import Sequence

from folkmoot.models.synthetic.draws import Draws
from folkmoot.models.synthetic.latents import Persona
from folkmoot.models.synthetic.lexicon import MIXTURES, NOUNS, VERBS

# {O}: the option or matter, {N} {M}: noun phrases, {V} {W}: verb phrases, {C}: "a retired nurse".
REASONS: dict[str, tuple[str, ...]] = {
    "terse": (
        "For me it is {N}. And {M}.",
        "{O} would {V}. That settles it.",
        "Simple: {N}, then {M}.",
        "{O} could {V} and {W}.",
        "I look for {N}. The rest is talk.",
        "It should {V}. {O} would do that.",
        "Without {N} there is no point.",
        "What counts is {N}, also {M}.",
        "{O}, because of {N}.",
        "No {N}, no deal.",
        "Ask anyone here about {N}.",
        "First {N}. Then we talk.",
        "I vote for what would {V}.",
        "Somebody has to think of {N}.",
    ),
    "plain": (
        "What matters most to me is {N}, and after that {M}.",
        "I think {O} would {V}, and it could {W} too.",
        "I keep coming back to {N}; without it the rest means little.",
        "If we want {N}, then I would start with {O}.",
        "The way I see it, {O} would {V}.",
        "I have thought about {N} a good deal, and about {M} as well.",
        "We hear little about {N}, and yet everything rests on it.",
        "My reason is {N}. I would add {M}.",
        "Of all that is on offer, {O} would {V} and {W}.",
        "I want something that will {V}, and I believe {O} can.",
        "Where I live, people talk of {N} before anything else.",
        "Take {N}: I have seen what happens where it is missing.",
        "To me it comes down to whether it would {V}, and I think it would.",
        "There are other good ideas, but none with so much of {N}.",
        "I would rather have {N} and {M} than something that only looks good.",
        "Ten years from now we will be glad of {N}.",
    ),
    "chatty": (
        "Honestly, when I talk to people it always ends up at {N}, and I get it, I really do.",
        "You know what I love about {O}? It would {V}, and who wouldn't want that!",
        "I was saying this only last week: {N}, that's what it's all about, that and {M}.",
        "And don't get me started on {N}, because that is half the story right there.",
        "I mean, {O} could {V}, it could {W}, and we'd all notice the difference.",
        "So for me it's {N} first, and a big helping of {M} on top.",
        "People laugh at me for going on about {N}, but look around you!",
        "Picture it: {O} would {V} in a year or two, wouldn't that be something?",
        "My friends and I argue about this all the time, and I'm the one who says {N}.",
        "There's {N}, there's {M}, and I could go on.",
        "Ask my sister, she'll tell you I never shut up about {N}!",
        "It sounds grand, I know, but {O} would {V}, and that's not nothing, is it?",
        "Oh, and one more thing, {N}, because nobody ever brings that up.",
        "I'd put {N} on a poster if they let me, right next to {M}.",
        "The other day on the bus I thought, what if we could {V}, just like that?",
        "Give me {N} any day and you can keep the rest!",
    ),
    "formal": (
        "My principal consideration is {N}, closely followed by {M}.",
        "I would submit that {O} would {V}, and in due course {W}.",
        "A choice of this kind ought to be judged by {N}.",
        "On balance, I let {N} outweigh the objections that I am aware of.",
        "It seems to me that {O} would be best placed to {V}.",
        "One should not underestimate {N}, nor indeed {M}.",
        "I arrive at {O} for the sake of {N}.",
        "The stronger argument, in my judgement, concerns {N} and {M}.",
        "I regard {N} as a precondition, and {M} as its natural companion.",
        "Few things recommend {O} as much as its capacity to {V}.",
        "I should add that {N} has been neglected for too long.",
        "It would be difficult to justify a course that failed to {V}.",
        "My reading of the matter leads me, by way of {N}, to {O}.",
        "There remains the question of {M}, which I weigh alongside {N}.",
        "A measure that is to {V} has to be designed for it, as {O} would be.",
    ),
}
SELF: dict[str, tuple[str, ...]] = {
    "terse": ("I'm {C}.", "I speak as {C}.", "{C_cap} sees it daily."),
    "plain": (
        "As {C}, I see this close up.",
        "Being {C} shapes how I look at it.",
        "I come to this as {C}.",
        "You notice such things as {C}.",
    ),
    "chatty": (
        "Well, I'm {C}, so you can imagine I have opinions!",
        "Speaking as {C}, I could tell you stories.",
        "You have to understand, as {C} I hear all sides of it.",
    ),
    "formal": (
        "Speaking as {C}, I have had occasion to reflect on this.",
        "My experience as {C} informs this view.",
        "As {C}, I am perhaps inclined to weigh such matters carefully.",
    ),
}
WEIGHED: dict[str, tuple[str, ...]] = {
    "terse": (
        "Nothing against {B}. First {O}.",
        "I looked at {B}. Not now.",
        "{B}? Maybe later.",
    ),
    "plain": (
        "I did think about {B}, but it comes second for me.",
        "There is something to {B}, only not before {O}.",
        "I would not be unhappy with {B}; I just rank it lower.",
        "Next to {O}, I find {B} less pressing.",
    ),
    "chatty": (
        "And look, I've got nothing against {B}, I'd cheer for it another year!",
        "I went back and forth on {B}, I really did, and still landed on {O}.",
        "Sure, I'd love {B} too, but you can't have everything, can you?",
    ),
    "formal": (
        "I have considered {B} and found much to like, though nothing as urgent.",
        "There is merit in {B}; I nevertheless place {O} first.",
        "Having weighed {B} against {O}, I remain with the latter.",
    ),
}
HOLDS: dict[str, tuple[str, ...]] = {
    "terse": (
        "Fair. I still say {O}.",
        "I hear you. Not convinced.",
        "That is a cost. I would pay it.",
        "Hm. {O} all the same.",
    ),
    "plain": (
        "That is a fair question, and I still lean to {O}.",
        "I see the point, but it does not move me away from {O}.",
        "You may be right about some of that; I weigh it differently.",
        "I accept there is a trade-off there, and I would take it.",
    ),
    "chatty": (
        "Okay, you've got me thinking, but I'm still with {O} here.",
        "Ha, that's a good one, and I won't pretend it isn't, but I'm sticking with {O}.",
        "I hear what you're saying, I do, and my gut still says {O}.",
    ),
    "formal": (
        "I take the objection seriously; it does not, on balance, move me from {O}.",
        "That is well put, and yet I find the case for {O} stronger.",
        "I concede the premise without accepting the conclusion.",
    ),
}
GIVES: dict[str, tuple[str, ...]] = {
    "terse": (
        "Had not seen it that way. You have a point.",
        "True. I am warming to {B}.",
        "That one lands. I need to think.",
    ),
    "plain": (
        "I have to admit that I had not looked at {B} that way.",
        "That makes me less sure than I was an hour ago; I gave {B} too little thought.",
        "You are right that I left that out, and it does speak for {B}.",
        "If I am honest, I think better of {B} now than when we began.",
    ),
    "chatty": (
        "Oh, now that is a good point, I honestly never thought of {B} like that!",
        "Okay, okay, I'm wobbling here, I can see {B} working when you put it so.",
        "You know, you might be getting through to me about {B}.",
    ),
    "formal": (
        "I must concede that this bears upon {B} in a way I had not considered.",
        "That argument has force, and it brings me closer to {B} than I expected.",
        "I find myself revising my estimate of {B} in the light of that.",
    ),
}
ASKS_FIRST = (
    "Thank you for taking part. Could you tell me in your own words why you chose {O}?",
    "You chose {O}. What led you to that choice?",
    "To begin with, what made {O} stand out for you?",
    "I would like to understand your choice of {O}. What speaks for it, as you see it?",
)
ASKS_MORE = (
    "What values or priorities lie behind that for you?",
    "How did you weigh {B} against it?",
    "Is there something in your own life that made you see it this way?",
    "What would have to be true for you to think differently about {B}?",
    "When you picture {O} a few years on, what has changed?",
    "What do you think somebody who chose {B} cares about?",
    "Which part of your reasoning are you most certain of, and which least?",
    "You mentioned {Q}. Could you say more about what you mean by that?",
    "Were there considerations on the other side that gave you pause?",
)
CHALLENGES = (
    "People who favour {X} speak of {N}. How would {O} answer that?",
    "Suppose {X} were in place: it would {V}. What would you say to somebody who needs just that?",
    "You have spoken for {O}. Is there not an assumption in it that {X} would call into "
    "question, with its promise of {N}?",
    "Consider a family on your own street for whom {X} would mean {N}. Would {O} do as much for "
    "them?",
    "Others argue that {X} would {V} and {W}. Where do you think they go wrong, if they do?",
    "I take your point. But what if {N} and {M} can only be had with {X}?",
    "Let us test that. If {X} would {V}, what is lost by putting it second?",
    "What would it take for you to grant that {X} could bring {N}, and perhaps {M} as well?",
    "You may be right about part of this. Still, those who chose {X} saw {N}. Did you weigh it?",
)
CHALLENGES_BARE = (
    "Suppose {X} were chosen instead. What exactly would be worse?",
    "What might somebody who prefers {X} say to you, and how would you reply?",
    "Which assumption behind {O} would you find hardest to defend against {X}?",
    "Can you imagine a case in which {X} would be the better choice?",
    "What are you giving up by not choosing {X}?",
)


_GOLDEN = 0.6180339887498949


class Tongue:
    """One speaker in one reply. Frames and phrases already used in `said` are avoided."""

    def __init__(self, who: Persona, draws: Draws, said: str = "") -> None:
        self.who = who
        self.draws = draws
        self._said = said.lower()
        self._used: set[str] = set()
        self._at = -1.0

    def camp(self) -> int:
        """The camp of one argument phrase, from the speaker's mixture.

        Spread evenly over a reply (steps of the golden ratio), so that few phrases already show
        the mixture.
        """
        self._at = (self._at + _GOLDEN) % 1.0 if self._at >= 0 else self.draws.unit()
        low, middle, _ = MIXTURES[self.who.camp]
        return 0 if self._at < low else 1 if self._at < low + middle else 2

    def noun(self) -> str:
        return self._fresh(NOUNS[self.camp()])

    def verb(self) -> str:
        return self._fresh(VERBS[self.camp()])

    def _fresh(self, phrases: Sequence[str]) -> str:
        start = self.draws.between(0, len(phrases) - 1)
        for k in range(len(phrases)):
            phrase = phrases[(start + k) % len(phrases)]
            if phrase not in self._used and phrase not in self._said:
                break
        else:
            phrase = phrases[start]
        self._used.add(phrase)
        return phrase

    def frame(self, frames: Sequence[str]) -> str:
        """A frame not used yet, nor told in what was said before (judged by its fixed words)."""
        start = self.draws.between(0, len(frames) - 1)
        for k in range(len(frames)):
            frame = frames[(start + k) % len(frames)]
            if frame not in self._used and _fixed(frame) not in self._said:
                break
        else:
            frame = frames[start]
        self._used.add(frame)
        return frame

    def fill(self, frame: str, **names: str) -> str:
        """The frame with phrases of the speaker's own camp mixture and the given names."""
        if "{N}" in frame:
            names.setdefault("N", self.noun())
        if "{M}" in frame:
            names.setdefault("M", self.noun())
        if "{V}" in frame:
            names.setdefault("V", self.verb())
        if "{W}" in frame:
            names.setdefault("W", self.verb())
        if "{C" in frame:
            names["C"] = self.who.calling
            names["C_cap"] = capital(self.who.calling)
        return capital(frame.format(**names))

    def say(self, frames: Sequence[str], **names: str) -> str:
        return self.fill(self.frame(frames), **names)

    def reason(self, about: str) -> str:
        return self.say(REASONS[self.who.voice], O=about)


def _fixed(frame: str) -> str:
    """The longest stretch of a frame between its slots, in lower case."""
    parts = [p.split("}", 1)[-1] for p in frame.split("{")]
    return max(parts, key=len).strip(" .,;:!?").lower()


def capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def listed(items: Sequence[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"
