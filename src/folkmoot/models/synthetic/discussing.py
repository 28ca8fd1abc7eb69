"""The respondent in a focus group: participants, moderator, coder, as their prompts ask.

A participant's position starts where the system prompt says, is pulled by what was heard in the
measure that the person is easily led, and shows in what is said; the coder reads it from the words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from folkmoot.models.request import Request
from folkmoot.models.synthetic.draws import Draws
from folkmoot.models.synthetic.knobs import Knobs
from folkmoot.models.synthetic.reading import Reading

_IN_GROUP = re.compile(r"\bfocus group", re.IGNORECASE)
_MODERATOR = re.compile(r"^You are the moderator of a focus group", re.IGNORECASE)
_CODER = re.compile(r"^You code what people say", re.IGNORECASE)
_TURN = re.compile(r"^([A-Z][\w'’-]+): ", re.MULTILINE)
_INSTRUCTIONS = re.compile(
    r"^(?:This has been passed around|The moderator asks:|Ask the group the next|The talk is over"
    r"|\w[\w'’-]* has just said:)",
    re.MULTILINE,
)
_CONCEPT = re.compile(r"(?:The idea (?:on the table|that they discuss) is this|Concept): (.+)")
_CATEGORY = re.compile(r"focus group about (.+?)\.(?:\s|$)|^Category: (.+)$", re.MULTILINE)
_WHO = re.compile(
    r"^You are ([A-Z][\w'’-]+)[^,\n]*, an? (\d+)-year-old (.+?) who lives (.+?) "
    r"in ([A-Z a-z].+?)\.$",
    re.MULTILINE,
)
_LEANS = {
    "strongly against": -0.8,
    "rather against": -0.4,
    "undecided": 0.0,
    "rather in favor": 0.4,
    "strongly in favor": 0.8,
}
# The five advices on taking up others, from the least to the most agreeable.
_COMPANY = (
    "weak spot",
    "take issue readily",
    "agree where you agree",
    "what was good",
    "common ground",
)
_LENGTHS = (
    ("one short sentence", (1, 2)),
    ("one or two sentences", (1, 2)),
    ("two or three sentences", (2, 3)),
    ("two to four sentences", (2, 4)),
    ("three or four sentences", (3, 4)),
)
_FOR = re.compile(
    r"\b(?:i'?d (?:buy|get|want|pay|enjoy|use)|count me in|i like|i liked|love|useful|handy|worth|"
    r"pays? for itself|half an hour back|made me smile|sold on|that'?s for me|finally|easier|"
    r"onto something|in favor|go ahead|not worried|good with me|i would, yes|fits right|warming|"
    r"coming around|talked me halfway|like it better|keep it sturdy|in use every day|solves)\b",
    re.IGNORECASE,
)
_AGAINST = re.compile(
    r"\b(?:don'?t need|wouldn'?t|not for me|no,|left me cold|who asked|nobody asked|gimmick|"
    r"lost me|not a dime|too much|don'?t trust|breaks?|broke|burned|in the way|stand around|"
    r"no sense|on the shelf|keep my money|come down a lot|bothers|worries me|oh no|yard sale|"
    r"commercial|less sure|"
    r"cooling|doubt|like it less|wear off|come and go|promise|one more thing|already own|against|"
    r"not tomorrow and not|weekend gone|feel the price|somebody else'?s life|not going away)\b",
    re.IGNORECASE,
)
_WARMED = re.compile(
    r"\b(?:coming around|warming up|like it better than i did|talked me halfway)", re.IGNORECASE
)
_COOLED = re.compile(
    r"\b(?:less sure|cooling off|put a doubt|like it less than i did)", re.IGNORECASE
)
_KINDS: tuple[tuple[str, str], ...] = (
    ("intro", r"about yourself|introduce|get to know"),
    ("story", r"last time you bought|best or (?:your )?worst|experience with|how did that go"),
    ("money", r"price|money|pay\b|cost"),
    ("change", r"have to change|take it seriously|seriously"),
    ("seen", r"now that you have seen|this speak|put you off|want it for yourself"),
    ("buy", r"tomorrow|would you buy"),
    ("takeaway", r"take away|tell the people|stayed with you|last thought"),
    ("who_for", r"picture|who is that|who would use|remind"),
    ("part", r"which part|worries|go wrong|concern|matters most"),
    ("first_thought", r"come[s]? to mind|first thing|first thought|make of"),
)
_THEMES: tuple[tuple[str, str], ...] = (
    ("price", r"pric|cost|money|dollar|pay|cheap|expens"),
    ("trust", r"trust|promis|break|broke|warranty|lasts?\b"),
    ("effort", r"clean|hassle|fuss|set(?:ting)? (?:it )?up|half an hour|step less|time\b"),
    ("need", r"need|already own|nobody asked|works fine"),
    ("fit", r"my house|at home|the way (?:we|i) live|family"),
    ("fun", r"new|fun|try|fresh"),
)
_NO_JOB = re.compile(r"retired|student|stay-at-home|homemaker|between jobs")


def reply(request: Request, reading: Reading, draws: Draws, knobs: Knobs) -> str | None:
    """The reply to a request of a focus group; None for any other request."""
    system = reading.system
    if not _IN_GROUP.search(system):
        return None
    if _CODER.search(system):
        return _coded(request, reading, draws)
    if _MODERATOR.search(system):
        return _moderates(request, reading, draws)
    guest = Guest.of(reading, knobs)
    if guest is None:
        return None
    if reading.options and "likely" in reading.prompt:
        return _intent(guest, reading.options, draws)
    return Speech(guest, reading, draws).text() if "moderator asks" in reading.prompt else None


@lru_cache(maxsize=1)
def _bank() -> dict[str, Any]:
    path = Path(__file__).with_name("discussing.yaml")
    data: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return data


@dataclass(frozen=True, slots=True)
class Heard:
    """One message of somebody else at the table."""

    name: str
    text: str

    @property
    def lean(self) -> float:
        return lean_of(self.text)


@lru_cache(maxsize=4096)
def lean_of(text: str) -> float:
    """How far a text speaks for (to 1) or against (to −1) the idea, by its words."""
    plain = text.replace("’", "'")
    ahead, back = len(_FOR.findall(plain)), len(_AGAINST.findall(plain))
    total = ahead + back
    return 0.0 if not total else (ahead - back) / (total + 1)


def heard_in(reading: Reading) -> list[Heard]:
    """Everything that the others said, the moderator included, in order."""
    out: list[Heard] = []
    # The latest messages stand at the head of the prompt itself, before the instructions.
    latest = _INSTRUCTIONS.split(reading.prompt, maxsplit=1)[0]
    for text in [*(m.content for m in reading.before if m.role == "user"), latest]:
        parts = _TURN.split(text)
        out += [Heard(parts[k], parts[k + 1].strip()) for k in range(1, len(parts) - 1, 2)]
    return out


@dataclass(frozen=True, slots=True)
class Guest:
    """A participant as the request shows them."""

    first: str
    job: str
    household: str
    place: str
    lean: float
    now: float
    company: int
    length: tuple[int, int]
    worries: bool
    price: int
    engaged: int
    filler: str
    others: tuple[Heard, ...]
    own: tuple[str, ...]
    pleasing: float

    @classmethod
    def of(cls, reading: Reading, knobs: Knobs) -> Guest | None:
        who = _WHO.search(reading.system)
        if not who:
            return None
        system = reading.system
        others = tuple(h for h in heard_in(reading) if h.name != "Moderator")
        start = next((v for words, v in _LEANS.items() if f"you are {words}" in system), 0.0)
        company = next((i for i, cue in enumerate(_COMPANY) if cue in reading.prompt), 2)
        filler = re.search(r'When you talk, you .*?say "([^"]+)"', system)
        return cls(
            first=who[1],
            job=who[3],
            household=who[4],
            place=who[5],
            lean=start,
            now=_pulled(start, company, others, reading.own_turns, knobs.sycophancy, system),
            company=company,
            length=next((n for cue, n in _LENGTHS if cue in reading.prompt), (2, 3)),
            worries="tend to worry" in system or "easily made anxious" in system,
            price=("Every dollar" in system or "watch prices" in system)
            - ("last thing you look at" in system or "pay more" in system),
            engaged=("deep into" in system or ("follow " in system and "with some" in system))
            - ("hardly ever think" in system or "do not follow" in system),
            filler=filler[1] if filler else "",
            others=others,
            own=reading.own_turns,
            pleasing=knobs.sycophancy,
        )


def _pulled(
    start: float,
    company: int,
    others: Sequence[Heard],
    own: Sequence[str],
    sycophancy: float,
    system: str,
) -> float:
    """The position after what was heard: pulled towards it, the agreeable and open more."""
    told = " ".join(own)
    start += 0.35 * len(_WARMED.findall(told)) - 0.35 * len(_COOLED.findall(told))
    leans = [h.lean for h in others if h.lean]
    if not leans:
        return max(-1.0, min(1.0, start))
    curious = "driven by curiosity" in system or "You are curious" in system
    ease = min(0.95, 0.14 + 0.07 * company + 0.08 * curious + 0.9 * sycophancy)
    weight = len(leans) / (len(leans) + 5)
    pull = sum(leans) / len(leans) - start
    return max(-1.0, min(1.0, start + ease * weight * pull))


class Speech:
    """What one participant says in one turn."""

    def __init__(self, guest: Guest, reading: Reading, draws: Draws) -> None:
        self._guest = guest
        self._draws = draws
        self._bank: Mapping[str, Any] = _bank()["participant"]
        told = [h.text for h in guest.others] + list(guest.own)
        self._said = " ".join(told).lower()
        self._question = _question(reading.prompt)
        self._probe = "about what you have just said" in reading.prompt
        self._names = _names(reading)
        self._mood = guest.now + draws.normal(0.0, 0.12)
        self._used_themes: set[str] = set()
        self._used: set[str] = set()

    def text(self) -> str:
        """The whole turn."""
        kind = "probe_answer" if self._probe else _kind(self._question)
        if kind == "intro":
            return self._introduction()
        low, high = self._guest.length
        size = self._draws.between(low, high)
        parts = [] if self._probe else self._taking_up()
        if kind == "story":
            parts.append(self._fill(self._fresh(self._bank["story"])))
            if size > 2:
                parts.append(self._experience())
            return self._joined(parts)
        stock = self._bank[kind][self._side()]
        if self._left(stock) or not parts:
            parts.append(self._fill(self._fresh(stock)))
        while len(parts) < size + (size == 1 and bool(self._draws.chance(0.4))):
            parts.append(self._reason())
        return self._joined(parts)

    def _side(self) -> str:
        return "pro" if self._mood > 0.18 else "con" if self._mood < -0.18 else "mid"

    def _introduction(self) -> str:
        key = "intro_nojob" if _NO_JOB.search(self._guest.job) else "intro"
        parts = [self._fill(self._fresh(self._bank[key])), self._experience()]
        if self._guest.length[1] > 3:
            parts.append(self._fill(self._fresh(self._bank["story"])))
        return self._joined(parts)

    def _experience(self) -> str:
        level = ("low", "middle", "high")[self._guest.engaged + 1]
        return self._fill(self._fresh(self._bank["experience"][level]))

    def _taking_up(self) -> list[str]:
        """Agreement, disagreement or a change of mind, where there is somebody to take up."""
        guest, draws = self._guest, self._draws
        recent = [h for h in guest.others[-5:] if abs(h.lean) > 0.2]
        if not recent:
            return []
        moved = self._moved(recent)
        if moved:
            return [moved]
        mid = self._side() == "mid"
        opposed = [h for h in recent if abs(h.lean) > 0.4 and (mid or h.lean * self._mood < 0)]
        differs = bool(opposed) and draws.chance(0.6)
        other = draws.pick(opposed) if differs else recent[-1]
        if differs or (not mid and other.lean * self._mood < 0):
            chance = (0.75, 0.6, 0.45, 0.3, 0.18)[guest.company] * (0.5 if mid else 1.0)
            chance *= 1 - guest.pleasing
            stock = self._bank["disagree_softly" if mid or guest.company >= 3 else "disagree"]
        elif mid:
            return []
        else:
            chance = (0.12, 0.25, 0.38, 0.52, 0.62)[guest.company]
            # Whoever pleases agrees the more the more have spoken before.
            chance += guest.pleasing * (0.5 + 0.12 * len(guest.others[-4:]))
            stock = self._bank["agree"]
        if not draws.chance(min(0.97, chance)):
            return []
        return [self._fresh(stock).format(name=other.name)]

    def _moved(self, recent: Sequence[Heard]) -> str:
        """A change of mind, said once the pull of the others has become strong enough."""
        guest = self._guest
        told = " ".join(guest.own)
        base = guest.lean + 0.35 * (len(_WARMED.findall(told)) - len(_COOLED.findall(told)))
        gap = guest.now - base
        if abs(gap) < 0.13 or not self._draws.chance(0.3):
            return ""
        cause = [h for h in recent if h.lean * gap > 0]
        if not cause or _WARMED.search(told) or _COOLED.search(told):
            return ""
        stock = self._bank["warming" if gap > 0 else "cooling"]
        # Whoever says that they were moved does not go on as firmly as before.
        self._mood = max(guest.now, 0.0) if gap > 0 else min(guest.now, 0.0)
        return self._fresh(stock).format(name=self._draws.pick(cause).name)

    def _reason(self) -> str:
        """One more reason, from the themes that matter to this person; both sides if undecided."""
        side, bank = self._side(), self._bank
        if side == "mid":
            if self._draws.chance(0.25):
                pro = self._fresh(bank["reason"][self._theme("pro")]["pro"])
                con = self._fresh(bank["reason"][self._theme("con")]["con"])
                frame = self._fresh(bank["both"])
                return str(frame.format(pro=pro, con=con, Pro=_capital(pro)))
            reason = self._fresh(bank["unsure"])
        elif self._draws.chance(0.2) and self._left(self._home_reasons(side)):
            return self._with_brood(self._fresh(self._home_reasons(side)))
        else:
            reason = self._fresh(bank["reason"][self._theme(side)][side])
        return str(self._fresh(bank["link"]).format(reason=reason, Reason=_capital(reason)))

    def _home_reasons(self, side: str) -> list[str]:
        return list(self._bank["home_reason"][self._home_key()][side])

    def _theme(self, side: str) -> str:
        guest = self._guest
        weights = {
            "price": 1.0 + 1.6 * guest.price * (1 if side == "con" else -1),
            "need": 1.0,
            "trust": 1.0 + 1.2 * guest.worries * (side == "con"),
            "effort": 1.0,
            "fit": 0.9,
            "fun": 0.7 + 0.5 * (guest.engaged > 0),
        }
        names = [t for t in weights if t not in self._used_themes] or list(weights)
        theme = names[self._draws.weighted([max(0.1, weights[t]) for t in names])]
        self._used_themes.add(theme)
        return theme

    def _home_key(self) -> str:
        words = self._guest.household
        if re.search(r"child", words):
            return "children"
        kinds = ("parents", "roommates", "relatives", "alone")
        return next((k for k in kinds if k in words), "couple")

    def _home(self) -> str:
        return self._with_brood(self._fresh(self._bank["homes"][self._home_key()]))

    def _with_brood(self, text: str) -> str:
        brood = re.search(r"(one child|two children|three children)", self._guest.household)
        kids = {"one child": "a kid", "two children": "two kids", "three children": "three kids"}
        return text.format(brood=kids[brood[1]] if brood else "kids")

    def _fill(self, frame: str) -> str:
        guest, n = self._guest, self._names
        home = self._home() if "{home}" in frame or "{Home}" in frame else ""
        job = guest.job
        return _capital(
            frame.format(
                first=guest.first,
                job=f"{_an(job)} {job}",
                place=guest.place,
                home=home,
                Home=_capital(home),
                category=n["category"],
                Category=_capital(n["category"]),
                thing=n["thing"],
                a_thing=n["a_thing"],
            )
        )

    def _fresh(self, stock: Sequence[str]) -> str:
        """A frame that nobody was heard to use, nor this turn; any where all are used up."""
        order = self._draws.shuffled(list(stock))
        unused = [f for f in order if f not in self._used] or order
        frame = next((f for f in unused if _fixed(f) not in self._said), unused[0])
        self._used.add(frame)
        return frame

    def _left(self, stock: Sequence[str]) -> bool:
        """Whether a list holds anything that was not said yet."""
        return any(f not in self._used and _fixed(f) not in self._said for f in stock)

    def _joined(self, parts: Sequence[str]) -> str:
        text = " ".join(p for p in parts if p)
        filler = self._guest.filler
        fits = filler in {"I guess", "you know", "let's be honest", "at the end of the day"}
        if fits and self._draws.chance(0.15):
            if filler in {"let's be honest", "at the end of the day"}:
                text = f"{_capital(filler)}, {_uncapital(text)}"
            elif text.endswith("."):
                text = f"{text[:-1]}, {filler}."
        return text


def _names(reading: Reading) -> dict[str, str]:
    """How the matter is called: category, and the thing by its head noun."""
    everything = f"{reading.system}\n{reading.prompt}"
    category = _CATEGORY.search(everything)
    concept = _CONCEPT.search(everything)
    noun = _noun(concept[1]) if concept else ""
    return {
        "category": (category[1] or category[2]).strip() if category else "such things",
        "thing": f"the {noun}" if noun else "it",
        "a_thing": f"{_an(noun)} {noun} like that" if noun else "something like that",
    }


def _noun(concept: str) -> str:
    """The last word of what a concept begins with: "A countertop oven that …" → "oven"."""
    head = re.split(
        r"\b(?:that|which|who|with|for|to|of|in|on|from|where|you)\b|[,.:;(]", concept, maxsplit=1
    )[0]
    words = re.findall(r"[A-Za-z][\w-]*", head)
    return words[-1] if words and len(words) <= 6 and words[-1].islower() else ""


def _question(prompt: str) -> str:
    found = re.search(r'The moderator asks: "(.+?)"\s*(?:\n|$)', prompt, re.DOTALL)
    return found[1] if found else prompt


def _kind(question: str) -> str:
    """What a question is about; the last sentence that gives a cue decides."""
    for sentence in reversed(re.split(r"(?<=[.!?])\s+", question)):
        for kind, cue in _KINDS:
            if re.search(cue, sentence, re.IGNORECASE):
                return kind
    return "part"


def _fixed(frame: str) -> str:
    """The longest stretch of a frame between its slots, in lower case."""
    parts = re.split(r"\{\w+\}", frame)
    return max(parts, key=len).strip(" .,;:!?").lower()


def _intent(guest: Guest, options: Sequence[str], draws: Draws) -> str:
    """The option at the place of the position on the scale, with some noise."""
    value = guest.now + draws.normal(0.0, 0.15) - 0.08 * guest.price
    share = (value + 0.95) / 1.9
    return options[min(len(options) - 1, max(0, int(share * len(options))))]


def _coded(request: Request, reading: Reading, draws: Draws) -> str:
    """What an answer shows of a position: said changes of mind, or words far from where it was."""
    prompt = reading.prompt
    found = re.search(r"last known position: ([+-−]?\d(?:\.\d+)?)", prompt)
    last = float(found[1].replace("−", "-")) if found else 0.0
    answer = re.search(r"'s answer: \"(.+?)\"\s*\n", prompt, re.DOTALL)
    text = answer[1] if answer else prompt
    shown = lean_of(text)
    step = 0.2 + 0.15 * draws.unit()
    valence, changed = last, True
    if _WARMED.search(text):
        valence = last + step
    elif _COOLED.search(text):
        valence = last - step
    elif abs(shown) >= 0.6 and shown * last < 0 and abs(last) >= 0.2:
        valence = last + step * (1 if shown > 0 else -1)
    else:
        changed = False
    valence = round(max(-1.0, min(1.0, valence)), 2)
    out: dict[str, Any] = {"changed": changed, "valence": valence}
    fields = (request.schema or {}).get("properties") or {}
    if "sentiment" in fields and "- sentiment:" in prompt:
        out["sentiment"] = round(shown, 2)
    return json.dumps(out)


def _moderates(request: Request, reading: Reading, draws: Draws) -> str:
    """The guide of a phase as JSON, a probe, or the next question."""
    names = _names(reading)
    if request.schema is not None:
        wanted = re.search(r"Write (\d+) question", reading.prompt)
        stock = _bank()["guide"].get(_phase(reading.prompt), [])
        questions = [q.format(**names) for q in stock][: int(wanted[1]) if wanted else 2]
        return json.dumps({"questions": questions or ["What do you think of it?"]})
    if "worth following up" in reading.prompt:
        name = re.search(r"Ask (\w[\w'’-]*), by name", reading.prompt)
        stock = _bank()["moderator"]["probe"]
        said = " ".join(reading.own_turns).lower()
        frames = [f for f in draws.shuffled(stock) if _fixed(f) not in said]
        return str((frames or stock)[0].format(name=name[1] if name else "you"))
    return _asks(reading, draws)


def _asks(reading: Reading, draws: Draws) -> str:
    """A transition, the planned question, and the quiet by name."""
    prompt, bank = reading.prompt, _bank()["moderator"]
    said = " ".join(reading.own_turns).lower()

    def fresh(stock: Sequence[str]) -> str:
        order = draws.shuffled(list(stock))
        return next((f for f in order if _fixed(f) not in said), order[0])

    planned = re.search(r'From your guide: "(.+?)"\s*(?:\n|$)', prompt, re.DOTALL)
    question = planned[1] if planned else "What do you think?"
    parts: list[str] = []
    talk = [h for h in heard_in(reading) if h.name != "Moderator"]
    if "very start" in prompt:
        parts.append(fresh(bank["welcome"]))
    elif "opens a new part" in prompt:
        parts += [fresh(bank["thanks"]).format(name=talk[-1].name)] if talk else []
        if "pass this around" not in prompt:
            stock = bank["lead_over"].get(_phase(prompt), bank["lead_over"]["reaction"])
            parts.append(fresh(stock).format(concept=_lowered(_concept(reading))))
    elif "This is the last question" in prompt:
        parts.append(fresh(bank["last"]))
    elif talk:
        parts.append(_pickup(talk, bank, fresh, draws))
    if "pass this around" in prompt:
        parts.append(fresh(bank["pass_around"]))
    parts.append(question)
    quiet = re.search(r"Not heard much so far: (.+?)\. Draw", prompt)
    if quiet:
        q = [n.strip() for n in quiet[1].split(",")]
        if len(q) > 1:
            parts.append(fresh(bank["quiet_two"]).format(q=q[0], r=q[1]))
        else:
            parts.append(fresh(bank["quiet_one"]).format(q=q[0]))
    return " ".join(parts)


def _phase(prompt: str) -> str:
    found = re.search(r"^Phase: (\w+)", prompt, re.MULTILINE)
    return found[1] if found else ""


def _concept(reading: Reading) -> str:
    found = _CONCEPT.search(f"{reading.system}\n{reading.prompt}")
    return found[1].strip().rstrip(".") if found else "what you see here"


def _lowered(text: str) -> str:
    """A concept inside a sentence: "a countertop oven …"."""
    return text[:1].lower() + text[1:] if re.match(r"(?:An?|The) ", text) else text


def _pickup(talk: Sequence[Heard], bank: Mapping[str, Any], fresh: Any, draws: Draws) -> str:
    """A word on what somebody just said, by its theme."""
    other = draws.pick(talk[-3:])
    theme = next((t for t, cue in _THEMES if re.search(cue, other.text, re.IGNORECASE)), "any")
    stock = bank["pickup"][theme]
    return str(fresh(stock).format(name=other.name))


def _an(noun: str) -> str:
    return "an" if noun[:1].lower() in "aeio" else "a"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _uncapital(text: str) -> str:
    keep = re.match(r"(?:I\b|I'|[A-Z][a-z]+,|[A-Z][a-z]+ (?:has|is|took|may)\b)", text)
    return text if keep else text[:1].lower() + text[1:]
