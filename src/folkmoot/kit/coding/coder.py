"""The coder: asks a model for the codes of a text, and refuses a code whose quote is not there."""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    model_validator,
)

from folkmoot.conversation.answer_types import (
    Answer,
    JsonList,
    Missing,
    Parsed,
    Unreadable,
    object_schema,
    parse_way_out,
    pin_schema,
    with_ways_out,
)
from folkmoot.conversation.prompts import PromptLibrary, escape_json
from folkmoot.conversation.reply_forms import folded
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.session.session import Scope, Session
from folkmoot.engine.settings.config import StudyConfig
from folkmoot.errors import InputError, ProtocolError
from folkmoot.kit.coding.codebook import EVERY, NO_CODE, Codebook, own_codebooks, read_codebook
from folkmoot.kit.coding.tables import CODER, RULE, SECOND, CodebookRow, CodeRow, TextRow
from folkmoot.models.catalog import resolve
from folkmoot.models.endpoints import Endpoints
from folkmoot.provenance import (
    Source,
    SourcedText,
    cell,
    concatenate,
    enclose,
    join,
    quote,
    quote_all,
    source_of,
)
from folkmoot.randomness import generator

PROMPT = "coder"
PROMPTS = PromptLibrary(Path(__file__).parent / "prompts")
NOT_FOUND = "the quote is not in the text"
MAX_SHOWN = 80  # characters of a quote that is not in the text


class CodingSettings(BaseModel):
    """The key `coding:` of a study file; `coding: off` is short for `coding: {enabled: off}`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    enabled: bool = Field(True, description="code free text as a stage of the run")
    sample: int = Field(
        50,
        ge=0,
        description="maximum number of texts of each codebook for the second coder or a person",
    )
    codebooks: str | None = Field(
        None, min_length=1, description="folder of your own codebooks that replace shipped ones"
    )


def _switch(value: object) -> object:
    """`coding: off` in full."""
    words = {"on": True, "yes": True, "off": False, "no": False}
    value = words.get(value.lower(), value) if isinstance(value, str) else value
    return {"enabled": value} if isinstance(value, bool) else value


class CodedConfig(StudyConfig):
    """The settings of a study with free text to code. The models of the coders are those of the
    roles `coder` and `second_coder` under `models:`; without `second_coder` there is none."""

    SECTIONS: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "Coding of free text": ("coding",),
        **StudyConfig.SECTIONS,
    }

    coding: Annotated[
        CodingSettings, BeforeValidator(_switch, json_schema_input_type=CodingSettings | bool)
    ] = Field(CodingSettings(), description="how free text is coded; `off` leaves it for later")

    @model_validator(mode="after")
    def _own_codebooks(self, info: ValidationInfo) -> CodedConfig:
        # Before anything is spent: codes are asked for at the end of a run.
        folder = (info.context or {}).get("folder")
        if folder is not None and self.coding.codebooks is not None:
            shipped = Path(inspect.getfile(type(self))).parent / "codebooks"
            own = folder / Path(self.coding.codebooks).expanduser()
            if problems := own_codebooks(own, shipped):
                raise ValueError("coding.codebooks: " + "; ".join(map(str, problems)))
        return self

    @model_validator(mode="after")
    def _two_coders(self) -> CodedConfig:
        first, second = self.model_for(CODER), self.models.get(SECOND)
        if second and first and same_model(first, second, self.endpoints):
            raise ValueError(
                f"models.{SECOND}: {second} is the coder already, and agreement of a model with "
                "itself says nothing about its codes; name another model, or leave it out and let "
                "a person code the sample (`folkmoot codes RUN --sheet FILE --blind`)"
            )
        return self


def same_model(first: str, second: str, endpoints: Endpoints) -> bool:
    """Whether two names mean one model."""
    try:
        return resolve(first, endpoints).name == resolve(second, endpoints).name
    except InputError:  # the check of all models says so
        return first == second


@dataclass(frozen=True)
class Text:
    """A text to be coded. `id` is unique within the codebook and tells the study where it stood.

    `about`: what the codebook's question refers to (name → text), shown to the coder; nothing in
    it may tell the condition. `slots`: the values that each slot of the codebook may have here.
    Texts that know their sources keep them in the prompt of the coder; give a conversation as
    `provenance.join`.
    """

    id: str
    text: str
    participant_id: str | None = None
    about: Mapping[str, str] = field(default_factory=dict)
    slots: Mapping[str, Sequence[str]] = field(default_factory=dict)


class Coded(NamedTuple):
    """One code of a text. `of`: slot → value; `refused`: why the code does not count."""

    code: str
    quote: str = ""
    of: Mapping[str, str] = {}
    refused: str = ""


Rule = Callable[[Text], Iterable[Coded]]


async def code(
    session: Session[Any],
    codebook: Path,
    texts: Iterable[Text],
    *,
    rule: Rule | None = None,
) -> dict[str, tuple[Coded, ...]]:
    """Code texts by a codebook; the codes that count by text id, a text without an answer left out.

    Records every text in the table `texts` and every code in `codes`. Where `coding:` is off the
    texts are recorded all the same, to be coded afterwards, and the reply is empty. `rule`: a
    phrase rule, recorded as a coder of its own for comparison; nothing else may rest on it.
    """
    settings = session.config.coding
    book = codebook_of(session, codebook, settings)
    listed = list(texts)
    unique(listed, book)
    said = [t for t in listed if t.text.strip()]
    sample = draw_sample(session.seed, book, said, settings.sample)
    await session.seal(f"codebook {book.name}", book.to_json())
    session.record(
        CodebookRow(
            codebook=book.name, text=book.yaml, codes=list(book.names), slots=list(book.slots)
        )
    )
    for text in listed:
        session.record(
            TextRow(
                codebook=book.name,
                text_id=text.id,
                participant_id=text.participant_id,
                text=text.text,
                about=dict(text.about),
                slots={slot: list(text.slots[slot]) for slot in book.slots},
                sampled=text.id in sample,
            )
        )
    if rule is not None:
        for text in said:
            record(session, book, text, rule(text), Who(RULE, RULE, RULE))
    if not settings.enabled:
        return {}
    return await coded_by_models(session, book, listed, sample)


async def coded_by_models(
    session: Session[Any], book: Codebook, texts: Sequence[Text], sample: frozenset[str]
) -> dict[str, tuple[Coded, ...]]:
    """Ask the coder for all texts, and the second coder, where one is named, for the sample."""
    prompt = {"prompt": PROMPTS.hashes()[PROMPT], "sample": sorted(sample)}
    await session.seal(f"coding {book.name}", prompt)
    found = await _pass(session, book, texts, CODER)
    if SECOND not in session.config.models:
        return found
    first, second = session.model_of(CODER), session.model_of(SECOND)
    if same_model(first, second, session.config.endpoints):
        session.warn(f"{first} takes both coders' seats, so there is no second coder")
    else:
        await _pass(session, book, [t for t in texts if t.id in sample], SECOND)
    return found


async def _pass(
    session: Session[Any], book: Codebook, texts: Sequence[Text], role: str
) -> dict[str, tuple[Coded, ...]]:
    kind = "embedded" if session.synthetic(role) else "model"
    who = Who(role, kind, session.model_of(role))

    async def one(scope: Scope, text: Text) -> tuple[Coded, ...] | None:
        codes: tuple[Coded, ...] = (Coded("", refused="no text"),)
        if text.text.strip():
            codes = await ask_coder(scope, role, book, text)
        record(scope, book, text, codes, who)
        good = tuple(c for c in codes if not c.refused)
        return good if good or not codes else None

    stage = session.at("coding" if role == CODER else "second_coding", book.name)
    found = (await stage.each(texts, one)).values()  # keyed as parts of an address, not by id
    return {t.id: codes for t, codes in zip(texts, found, strict=True) if codes is not None}


async def ask_coder(scope: Scope, role: str, book: Codebook, text: Text) -> tuple[Coded, ...]:
    """What a model codes in one text; what is still refused after the re-asks says why."""
    text = quote_text(book, text)
    wanted = Codes(book, text)
    coder = Speaker(role, role=role, system=system_prompt(wanted))
    got = await scope.ask(coder, text.text, answer=wanted, temperature=0.0, about=book.question)
    if not isinstance(got, Missing):
        return got
    return (Coded("", refused=got.reason),)


def quote_text(book: Codebook, text: Text) -> Text:
    """Return a text to be coded of which every part knows its source: as the study gave it, else
    the row of the table `texts`. Of a coding afterwards that is in the run that is coded. A text
    of several sources is also one of that row, which is what the coder reads."""

    def quote_part(part: str, column: str, speaker: str = "") -> str:
        known = isinstance(part, SourcedText)
        id = cell(f"texts.{column}", book.name, text.id)
        return part if known else quote(part, "material", id, speaker)

    words = quote_part(text.text, "text", text.participant_id or "")
    if source_of(words) is None:
        words = enclose(words, Source("material", cell("texts.text", book.name, text.id)))
    return replace(
        text,
        text=words,
        about={name: quote_part(part, "about") for name, part in text.about.items()},
        slots={
            slot: [quote_part(value, "slots") for value in values]
            for slot, values in text.slots.items()
        },
    )


def system_prompt(wanted: Codes) -> str:
    """All that a coder is told: the codebook and what its question refers to."""
    book, text = wanted.book, wanted.text
    slots = quote_all(list(book.slots), "material", cell("codebooks.slots", book.name))
    unquoted = [c.name for c in book.codes if not c.quoted]
    return PROMPTS.render(
        PROMPT,
        codebook=quote(book.yaml, "material", cell("codebooks.text", book.name)),
        about=_format_about(text.about),
        one=book.choose == "one",
        slots={slot: text.slots[slot] for slot in slots},
        unquoted=quote_all(unquoted, "material", cell("codebooks.codes", book.name)),
        answer_format=wanted.describe_format({}),
    )


def _format_about(about: Mapping[str, str]) -> str:
    """Return what a question refers to as JSON in lines; the names are the study's own words."""
    lines = [
        concatenate((f'  "{escape_json(name)}": "', escape_json(part), '"'), plain=None)
        for name, part in about.items()
    ]
    return concatenate(("{\n", join(",\n", lines), "\n}"), plain=None) if lines else ""


def codebook_of(session: Session[Any], path: Path, settings: CodingSettings) -> Codebook:
    """The codebook of the study, or the user's own of the same file name in its place."""
    if settings.codebooks is not None:
        own = session.study_dir / Path(settings.codebooks).expanduser() / path.name
        if own.exists():
            return read_codebook(own)
    return read_codebook(path)


def draw_sample(seed: int, book: Codebook, texts: Sequence[Text], size: int) -> frozenset[str]:
    """The ids of the texts that a second coder codes, drawn by the seed of the run."""
    rng = generator(seed, ("coding", book.name, "sample"))
    chosen = rng.permutation(len(texts))[:size]
    return frozenset(texts[int(i)].id for i in chosen)


def unique(texts: Sequence[Text], book: Codebook) -> None:
    """Raise ProtocolError for two texts of one id, or one that lacks the values of a slot."""
    seen: set[str] = set()
    for text in texts:
        if text.id in seen:
            raise ProtocolError(f"coding by {book.name}: duplicate text id {text.id!r}")
        seen.add(text.id)
        if lacking := [slot for slot in book.slots if not text.slots.get(slot)]:
            raise ProtocolError(f"coding by {book.name}: {text.id} has no values of {lacking[0]!r}")


class Who(NamedTuple):
    """Who coded: as what (coder, second_coder, rule), which model, of which kind."""

    by: str
    kind: str
    name: str


def record(scope: Scope, book: Codebook, text: Text, codes: Iterable[Coded], who: Who) -> None:
    """Add the codes of one text to the table; a text in which no code applies has a row too."""
    for each in tuple(codes) or (Coded(NO_CODE),):
        scope.record(
            CodeRow(
                codebook=book.name,
                text_id=text.id,
                participant_id=text.participant_id,
                code=each.code or None,
                of=dict(each.of),
                quote=each.quote or None,
                by=who.by,
                coder=who.name,
                coder_kind=who.kind,
                refused=each.refused or None,
            )
        )


# --- reading a reply ---------------------------------------------------------------------------


class _Item(BaseModel):
    """A code as a model gives it; slots are further fields."""

    model_config = pin_schema(
        "_Item", "A code as a model gives it; slots are further fields.", ConfigDict(extra="allow")
    )

    code: str
    quote: str | None = ""


@dataclass(frozen=True)
class Codes(Answer[tuple[Coded, ...]]):
    """The answer type of a coder. Unreadable while a code, a slot or a quote is wrong, so that it
    is asked for again; `salvage` then keeps what stands."""

    book: Codebook
    text: Text
    kind: str = "json"

    @property
    def schema(self) -> dict[str, object]:
        fields: dict[str, dict[str, object]] = {
            "code": {
                "type": "string",
                "enum": list(self._codes_with_ways_out()),
                "description": "the name of the code",
            },
            **{
                slot: {
                    "type": "string",
                    "enum": [*self.text.slots[slot], EVERY],
                    "description": f"one of its values, or {EVERY}",
                }
                for slot in self.book.slots
            },
            "quote": {
                "type": "string",
                "description": "copied letter by letter",
            },
        }
        codes = {"type": "array", "items": object_schema("Code", fields)}
        return object_schema("Codes", {"codes": codes})

    def _codes_with_ways_out(self) -> tuple[str, ...]:
        """The codes, with the ways out where exactly one is wanted (else a list may be empty)."""
        return with_ways_out(self.book.names) if self.book.choose == "one" else self.book.names

    def parse(self, reply: str) -> Parsed[tuple[Coded, ...]] | Unreadable | Missing:
        read = JsonList(_Item, name="codes").parse(reply)
        if not isinstance(read, Parsed):
            return read
        ways_out = [way for item in read.value if (way := self._way_out(item)) is not None]
        coded = [item for item in read.value if self._way_out(item) is None]
        if ways_out and not coded:
            return ways_out[0]
        codes = self._checked(coded)
        problems = [c.refused for c in codes if c.refused]
        problems += [f"{r.was!r} could not be read" for r in read.repairs if r.dropped]
        if problems or (self.book.choose == "one" and not codes):
            first = "; ".join(problems[:3]) or "no code was given"
            return Unreadable(
                f"Not every code can be taken: {first}. Reply with the whole JSON object again, "
                "each quote copied from the text letter by letter."
            )
        return Parsed(codes, read.parse_step, read.repairs)

    def salvage(self, reply: str) -> Parsed[tuple[Coded, ...]] | None:
        """The codes of a reply that is still not right, the wrong ones with the reason."""
        read = JsonList(_Item, name="codes").parse(reply)
        codes = self._checked(read.value) if isinstance(read, Parsed) else ()
        return Parsed(codes, "exact") if codes else None

    def _way_out(self, item: _Item) -> Missing | None:
        return None if self.book.code(item.code) else parse_way_out(item.code)

    def _checked(self, items: Iterable[_Item]) -> tuple[Coded, ...]:
        found: dict[tuple[object, ...], Coded] = {}
        for item in items:
            for each in self._one(item):
                said_of = tuple(each.of.items())
                place = said_of if self.book.choose == "one" else (each.code, said_of, each.quote)
                other = found.setdefault(place, each)
                if other.code != each.code and not other.refused and not each.refused:
                    both = f"{other.code!r} and {each.code!r} exclude each other"
                    found[place] = other._replace(refused=both)
        return tuple(found.values())

    def _one(self, item: _Item) -> list[Coded]:
        known, quote = self.book.code(item.code), (item.quote or "").strip()
        if known is None:
            return [Coded(item.code, quote, refused=f"{item.code!r} is not in the codebook")]
        values = [self._values(slot, item) for slot in self.book.slots]
        if not all(values):
            slot = next(s for s, v in zip(self.book.slots, values, strict=True) if not v)
            refused = f"{slot}: {getattr(item, slot, None)!r} is none of its values"
            return [Coded(known.name, quote, refused=refused)]
        wrong = "" if not known.quoted or stands_in(quote, self.text.text) else NOT_FOUND
        shown = quote if len(quote) <= MAX_SHOWN else f"{quote[:MAX_SHOWN]}…"
        refused = f"{wrong}: {shown!r}" if wrong else ""
        return [
            Coded(known.name, quote, dict(zip(self.book.slots, each, strict=True)), refused)
            for each in itertools.product(*values)
        ]

    def _values(self, slot: str, item: _Item) -> list[str]:
        """The values of a slot that an item names: one, several, or all."""
        said = getattr(item, slot, None)
        wanted = {_plain(str(s)) for s in (said if isinstance(said, list) else [said])}
        known = list(self.text.slots[slot])
        named = [v for v in known if _plain(v) in wanted]
        return named or (known if EVERY in wanted else [])


def stands_in(quote: str, text: str) -> bool:
    """Whether a quote is in a text, as whole words; case, spaces, quotation marks and dashes fold.

    A quote without a letter or a digit shows nothing.
    """
    wanted, whole = _plain(quote).strip("\"'.… "), _plain(text)
    if not re.search(r"\w", wanted):
        return False
    found = (m.span() for m in re.finditer(re.escape(wanted), whole))
    return any(
        not _one_word(whole[start - 1 : start], wanted[0])
        and not _one_word(wanted[-1], whole[end : end + 1])
        for start, end in found
    )


def _one_word(before: str, after: str) -> bool:
    """Whether two characters belong to one word. Scripts whose letters have no case are taken to
    write without spaces, as Chinese and Thai do."""
    return all(c.isdecimal() or c.islower() or c == "_" for c in (before, after))


def _plain(text: str) -> str:
    return re.sub(r"\s+", " ", folded(text))
