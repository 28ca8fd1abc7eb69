"""What a request says: who is asked, what for, which options, and what the person was shown.

Text is the respondent's only channel: all it knows of a study is what these functions find in the
messages.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache

from folkmoot.models.request import Message, Request

_REASK = re.compile(
    r"reply with (?:exactly one of these|a (?:single|whole) number|a number|only the json)"
    r"|the reply was empty|did not fit:|could not be read",
    re.IGNORECASE,
)
_ITEM = re.compile(r"^[ \t]*(?:\(?\d{1,2}[.):]|[A-Z]\.|[-*•])[ \t]+(.+?)[ \t]*$")
_OPTION_HEAD = re.compile(
    r"\b(?:options?|choices?|choose|pick|select|alternatives|one of)\b", re.IGNORECASE
)
_INLINE = re.compile(
    r"(?:available options|options available|response options|options|choose (?:one )?(?:of|from)"
    r"|one of(?: these| the following)?)\s*(?:are|is)?\s*:?\s*(\[[^\]\n]+\]|[^\n]+)",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"[\"“]([^\"“”\n]{1,200})[\"”]")
_HELD = re.compile(
    r"(?:previously|originally|initially|first|earlier|participant|you)\s+"
    r"(?:chose|selected|picked|voted for|preferred)\s*:?\s*[\"“]([^\"”\n]+)[\"”]",
    re.IGNORECASE,
)
_HEADING = re.compile(r"^#{1,6}[ \t]+(?:\d+[.)][ \t]*)?(.+?)[ \t]*#*$", re.MULTILINE)
_VOTES = re.compile(
    r"\s*\((?:\d|n\s*=)[^)]*\)\s*$|\s*[—–:-]\s*\d+\s*(?:votes?|%).*$", re.IGNORECASE
)
_TURN = re.compile(
    r"^(?:\*\*)?(Moderator|Interviewer|You|Participant|Facilitator)(?:\*\*)?:(?:\*\*)?[ \t]*",
    re.MULTILINE,
)
_OPPOSING = re.compile(
    r"oppos(?:ing|ite|ed|ition)|challeng|socratic|counter-?argument|devil", re.IGNORECASE
)
_MODERATOR = re.compile(r"\byou are (?:an? |the )?(?:\w+[ -]){0,3}moderator\b", re.IGNORECASE)


@dataclass(frozen=True)
class Reading:
    """One request, read. `prompt` is the task (the format reminder of a re-ask is `reminder`)."""

    system: str
    prompt: str
    reminder: str
    before: tuple[Message, ...]
    model: str

    @cached_property
    def everything(self) -> str:
        return f"{self.system}\n\n{self.prompt}"

    @cached_property
    def own_turns(self) -> tuple[str, ...]:
        return tuple(m.content for m in self.before if m.role == "assistant")

    @cached_property
    def options(self) -> tuple[str, ...]:
        """The options in the order shown: the prompt's list, the reminder's, the system's."""
        return (
            listed_options(self.prompt)
            or listed_options(self.reminder)
            or tuple(_QUOTED.findall(self.reminder))
            or listed_options(self.system)
            or self._inline(self.prompt)
            or self._inline(self.system)
        )

    def _inline(self, text: str) -> tuple[str, ...]:
        """Options in a line; where commas cut one in two, the headings know the names better."""
        found = inline_options(text)
        named = chosen_in(text) if found else ()
        if found and named and not same_option(named[-1], found):
            heads = tuple(dict.fromkeys(_VOTES.sub("", h) for h in _HEADING.findall(text)))
            return heads if same_option(named[-1], heads) else found
        return found

    @cached_property
    def held(self) -> str:
        """The option that the text says was chosen before, or empty."""
        found = chosen_in(self.system) or chosen_in(self.prompt)
        return same_option(found[-1], self.options) if found else ""

    @cached_property
    def sections(self) -> dict[str, str]:
        """Positions of other participants by option, from headings that name options."""
        shown = [m.content for m in self.before if m.role == "user"]
        out: dict[str, str] = {}
        for text in (self.system, *shown, self.prompt):
            if "#" in text:
                for option, body in option_sections(text, self.options).items():
                    out[option] = f"{out[option]}\n{body}" if option in out else body
        return out

    @cached_property
    def quoted_dialogue(self) -> tuple[tuple[str, str], ...]:
        """Turns written out in the prompt ("Moderator: …", "You: …")."""
        return dialogue_in(self.prompt)

    @cached_property
    def opponents_words(self) -> tuple[str, ...]:
        """What a moderator who argued for an opposing view said, turn by turn."""
        frame = f"{self.system}\n{_TURN.split(self.prompt, maxsplit=1)[0]}"
        tail = self.prompt[-400:]
        if not (_OPPOSING.search(_framing(frame)) or _OPPOSING.search(_framing(tail))):
            return ()
        quoted = [t for who, t in self.quoted_dialogue if who != "you"]
        if quoted:
            return tuple(quoted)
        return tuple(m.content for m in self.before if m.role == "user" and "##" not in m.content)

    @cached_property
    def interviewed(self) -> bool:
        """Whether the person's own clarification talk stands in the request."""
        quoted = any(who == "you" for who, _ in self.quoted_dialogue)
        return bool(self.own_turns) or quoted


def read(request: Request) -> Reading:
    """The reading of a request; a re-ask is read as its original task with a reminder."""
    system = "\n\n".join(m.content for m in request.messages if m.role == "system")
    rest = [m for m in request.messages if m.role != "system"]
    reminder = ""
    while len(rest) >= 3 and rest[-1].role == "user" and _REASK.search(rest[-1].content[:600]):
        reminder = reminder or rest[-1].content
        rest = rest[:-2] if rest[-2].role == "assistant" else rest[:-1]
    prompt = rest[-1].content if rest else ""
    return Reading(system, prompt, reminder, tuple(rest[:-1]), request.model)


def _framing(text: str) -> str:
    """The text without headings' sections, whose words are others' and no frame."""
    return text.split("\n## ", 1)[0][-2500:]


@lru_cache(maxsize=1024)
def chosen_in(text: str) -> tuple[str, ...]:
    """The options that a text says were chosen before, in order."""
    return tuple(_HELD.findall(text)) if '"' in text or "“" in text else ()


@lru_cache(maxsize=512)
def listed_options(text: str) -> tuple[str, ...]:
    """A numbered or bulleted list under a line that announces options; the last such list."""
    lists: list[tuple[str, list[str]]] = []
    head, fresh = "", True
    for line in text.splitlines():
        item = _ITEM.match(line)
        if item:
            if fresh:
                lists.append((head, []))
            lists[-1][1].append(item[1].strip().strip("\"“”'`*"))
            fresh = False
        elif line.strip():
            head, fresh = line.strip(), True
    for announced, items in reversed(lists):
        if len(items) > 1 and _OPTION_HEAD.search(announced):
            return tuple(dict.fromkeys(items))
    return ()


@lru_cache(maxsize=512)
def inline_options(text: str) -> tuple[str, ...]:
    """Options in one line: a bracketed or quoted list, or words parted by ; , or / and `or`."""
    for found in reversed(_INLINE.findall(text)):
        quoted = re.findall(r"[\"“]([^\"“”]+)[\"”]|'([^']+)'(?=\s*[,\])])", found)
        items = [a or b for a, b in quoted]
        if len(items) < 2:
            body = found.strip().strip("[]").rstrip(".")
            mark = ";" if ";" in body else ("|" if "|" in body else ",")
            items = [p.strip().strip("'\"") for p in body.split(mark)]
            if items and items[-1].lower().startswith("or "):
                items[-1] = items[-1][3:]
            if len(items) == 1:
                items = re.split(r"\s+or\s+|\s*/\s*", items[0])
        items = [i for i in items if i]
        if len(items) > 1 and all(len(i) < 160 for i in items):
            return tuple(dict.fromkeys(items))
    return ()


def fold(text: str) -> str:
    """Lower case, single spaces, no quotes or closing marks: for comparing names of options."""
    return " ".join(text.lower().split()).strip("\"'“”`*.,:;! ")


def same_option(text: str, options: tuple[str, ...]) -> str:
    """The option that a text names, or the text itself where no list is known."""
    for option in options:
        if fold(option) == fold(text):
            return option
    return "" if options else text


@lru_cache(maxsize=256)
def option_sections(text: str, options: tuple[str, ...]) -> dict[str, str]:
    """Bodies of the headings that name an option (vote counts behind the name are ignored)."""
    names = {fold(o): o for o in options}
    heads = list(_HEADING.finditer(text))
    out: dict[str, str] = {}
    for at, head in enumerate(heads):
        option = names.get(fold(_VOTES.sub("", head[1]))) or names.get(fold(head[1]))
        if not option and not options:
            option = head[1]
        if not option:
            continue
        end = heads[at + 1].start() if at + 1 < len(heads) else len(text)
        body = text[head.end() : end]
        # The last section ends where the request goes on to say what to do.
        body = re.split(r"\n\s*(?:Now\b|Please |Respond |Reply )", body, maxsplit=1)[0]
        out[option] = body
    return out


def dialogue_in(text: str) -> tuple[tuple[str, str], ...]:
    """(who, words) for each turn written out in a text; `who` in lower case."""
    parts = _TURN.split(text)
    turns = [(parts[k].lower(), parts[k + 1].strip()) for k in range(1, len(parts) - 1, 2)]
    if turns:
        who, last = turns[-1]
        last = re.split(
            r"\n\s*(?:Now\b|Please |Respond |Reply |Summar|-{3}|Write )", last, maxsplit=1
        )[0]
        turns[-1] = (who, last.strip())
    return tuple(turns)
