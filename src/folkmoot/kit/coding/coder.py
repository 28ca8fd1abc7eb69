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
    AnswerType,
    JsonList,
    Missing,
    ParsedAnswer,
    ParseFailure,
    object_schema,
    parse_way_out,
    pin_schema,
    with_ways_out,
)
from folkmoot.conversation.prompts import PromptLibrary, escape_json
from folkmoot.conversation.reply_forms import normalise_text
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.session.session import Scope, Session
from folkmoot.engine.settings.config import StudyConfig
from folkmoot.errors import InputError, ProtocolError
from folkmoot.kit.coding.codebook import (
    ALL_SLOT_VALUES,
    NO_CODE_LABEL,
    Codebook,
    check_user_codebooks,
    read_codebook,
)
from folkmoot.kit.coding.tables import (
    CODER_ROLE,
    RULE_ROLE,
    SECOND_CODER_ROLE,
    CodebookRow,
    CodeRow,
    TextRow,
)
from folkmoot.models.catalog import resolve_model
from folkmoot.models.endpoints import Endpoints
from folkmoot.provenance import (
    Source,
    SourcedText,
    cell_id,
    concatenate_texts,
    enclose_text,
    join_texts,
    quote_all,
    quote_value,
    source_of,
)
from folkmoot.randomness import generator

PROMPT = "coder"
PROMPTS = PromptLibrary(Path(__file__).parent / "prompts")
QUOTE_NOT_FOUND = "the quote is not in the text"
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


def _expand_switch(value: object) -> object:
    """`coding: off` in full."""
    words = {"on": True, "yes": True, "off": False, "no": False}
    value = words.get(value.lower(), value) if isinstance(value, str) else value
    return {"enabled": value} if isinstance(value, bool) else value


class CodingStudyConfig(StudyConfig):
    """The settings of a study with free text to code. The models of the coders are those of the
    roles `coder` and `second_coder` under `models:`; without `second_coder` there is none."""

    SECTIONS: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "Coding of free text": ("coding",),
        **StudyConfig.SECTIONS,
    }

    coding: Annotated[
        CodingSettings,
        BeforeValidator(_expand_switch, json_schema_input_type=CodingSettings | bool),
    ] = Field(CodingSettings(), description="how free text is coded; `off` leaves it for later")

    @model_validator(mode="after")
    def _check_user_codebooks(self, info: ValidationInfo) -> CodingStudyConfig:
        # Before anything is spent: codes are asked for at the end of a run.
        folder = (info.context or {}).get("folder")
        if folder is not None and self.coding.codebooks is not None:
            shipped = Path(inspect.getfile(type(self))).parent / "codebooks"
            own = folder / Path(self.coding.codebooks).expanduser()
            if problems := check_user_codebooks(own, shipped):
                raise ValueError("coding.codebooks: " + "; ".join(map(str, problems)))
        return self

    @model_validator(mode="after")
    def _check_distinct_coders(self) -> CodingStudyConfig:
        first, second = self.model_for(CODER_ROLE), self.models.get(SECOND_CODER_ROLE)
        if second and first and same_model(first, second, self.endpoints):
            raise ValueError(
                f"models.{SECOND_CODER_ROLE}: {second} is the coder already, and agreement of a "
                "model with "
                "itself says nothing about its codes; name another model, or leave it out and let "
                "a person code the sample (`folkmoot codes RUN --sheet FILE --blind`)"
            )
        return self


def same_model(first: str, second: str, endpoints: Endpoints) -> bool:
    """Whether two names mean one model."""
    try:
        return resolve_model(first, endpoints).name == resolve_model(second, endpoints).name
    except InputError:  # the check of all models says so
        return first == second


@dataclass(frozen=True)
class TextToCode:
    """A text to be coded. `id` is unique within the codebook and tells the study where it stood.

    `context`: what the codebook's question refers to (name → text), shown to the coder; nothing in
    it may tell the condition. `slots`: the values that each slot of the codebook may have here.
    Texts that know their sources keep them in the prompt of the coder; give a conversation as
    `provenance.join`.
    """

    id: str
    text: str
    participant_id: str | None = None
    context: Mapping[str, str] = field(default_factory=dict)
    slots: Mapping[str, Sequence[str]] = field(default_factory=dict)


class AssignedCode(NamedTuple):
    """One code of a text. `slots`: slot → value; `rejection_reason`: why the code does not
    count."""

    code: str
    quote: str = ""
    slots: Mapping[str, str] = {}
    rejection_reason: str = ""


RuleCoder = Callable[[TextToCode], Iterable[AssignedCode]]


async def code_texts(
    session: Session[Any],
    codebook: Path,
    texts: Iterable[TextToCode],
    *,
    rule: RuleCoder | None = None,
) -> dict[str, tuple[AssignedCode, ...]]:
    """Code texts by a codebook; the codes that count by text id, a text without an answer left out.

    Records every text in the table `texts` and every code in `codes`. Where `coding:` is off the
    texts are recorded all the same, to be coded afterwards, and the reply is empty. `rule`: a
    phrase rule, recorded as a coder of its own for comparison; nothing else may rest on it.
    """
    settings = session.config.coding
    book = load_codebook(session, codebook, settings)
    listed = list(texts)
    require_unique_texts(listed, book)
    said = [text_to_code for text_to_code in listed if text_to_code.text.strip()]
    sample = draw_sample(session.seed, book, said, settings.sample)
    await session.seal(f"codebook {book.name}", book.to_json())
    session.record(
        CodebookRow(
            codebook=book.name,
            text=book.to_yaml,
            codes=list(book.code_names),
            slots=list(book.slots),
        )
    )
    for text in listed:
        session.record(
            TextRow(
                codebook=book.name,
                text_id=text.id,
                participant_id=text.participant_id,
                text=text.text,
                about=dict(text.context),
                slots={slot: list(text.slots[slot]) for slot in book.slots},
                sampled=text.id in sample,
            )
        )
    if rule is not None:
        for text in said:
            record_codes(
                session, book, text, rule(text), CoderInfo(RULE_ROLE, RULE_ROLE, RULE_ROLE)
            )
    if not settings.enabled:
        return {}
    return await code_with_models(session, book, listed, sample)


async def code_with_models(
    session: Session[Any], book: Codebook, texts: Sequence[TextToCode], sample: frozenset[str]
) -> dict[str, tuple[AssignedCode, ...]]:
    """Ask the coder for all texts, and the second coder, where one is named, for the sample."""
    prompt = {"prompt": PROMPTS.hashes()[PROMPT], "sample": sorted(sample)}
    await session.seal(f"coding {book.name}", prompt)
    found = await _code_all(session, book, texts, CODER_ROLE)
    if SECOND_CODER_ROLE not in session.config.models:
        return found
    first, second = session.resolve_model(CODER_ROLE), session.resolve_model(SECOND_CODER_ROLE)
    if same_model(first, second, session.config.endpoints):
        session.warn(f"{first} takes both coders' seats, so there is no second coder")
    else:
        await _code_all(
            session,
            book,
            [text_to_code for text_to_code in texts if text_to_code.id in sample],
            SECOND_CODER_ROLE,
        )
    return found


async def _code_all(
    session: Session[Any], book: Codebook, texts: Sequence[TextToCode], role: str
) -> dict[str, tuple[AssignedCode, ...]]:
    kind = "embedded" if session.is_synthetic(role) else "model"
    who = CoderInfo(role, kind, session.resolve_model(role))

    async def code_one_text(scope: Scope, text: TextToCode) -> tuple[AssignedCode, ...] | None:
        codes: tuple[AssignedCode, ...] = (AssignedCode("", rejection_reason="no text"),)
        if text.text.strip():
            codes = await ask_for_codes(scope, role, book, text)
        record_codes(scope, book, text, codes, who)
        good = tuple(assigned_code for assigned_code in codes if not assigned_code.rejection_reason)
        return good if good or not codes else None

    stage = session.child("coding" if role == CODER_ROLE else "second_coding", book.name)
    found = (
        await stage.map(texts, code_one_text)
    ).values()  # keyed as parts of an address, not by id
    return {
        text_to_code.id: codes
        for text_to_code, codes in zip(texts, found, strict=True)
        if codes is not None
    }


async def ask_for_codes(
    scope: Scope, role: str, book: Codebook, text: TextToCode
) -> tuple[AssignedCode, ...]:
    """What a model codes in one text; what is still refused after the re-asks says why."""
    text = quote_text(book, text)
    wanted = CodesAnswer(book, text)
    coder = Speaker(role, role=role, system=build_coder_prompt(wanted))
    got = await scope.ask(
        coder, text.text, answer_type=wanted, temperature=0.0, about=book.question
    )
    if not isinstance(got, Missing):
        return got
    return (AssignedCode("", rejection_reason=got.reason),)


def quote_text(book: Codebook, text: TextToCode) -> TextToCode:
    """Return a text to be coded of which every part knows its source: as the study gave it, else
    the row of the table `texts`. Of a coding afterwards that is in the run that is coded. A text
    of several sources is also one of that row, which is what the coder reads."""

    def quote_part(part: str, column: str, speaker: str = "") -> str:
        known = isinstance(part, SourcedText)
        id = cell_id(f"texts.{column}", book.name, text.id)
        return part if known else quote_value(part, "material", id, speaker)

    words = quote_part(text.text, "text", text.participant_id or "")
    if source_of(words) is None:
        words = enclose_text(words, Source("material", cell_id("texts.text", book.name, text.id)))
    return replace(
        text,
        text=words,
        context={name: quote_part(part, "about") for name, part in text.context.items()},
        slots={
            slot: [quote_part(value, "slots") for value in values]
            for slot, values in text.slots.items()
        },
    )


def build_coder_prompt(wanted: CodesAnswer) -> str:
    """All that a coder is told: the codebook and what its question refers to."""
    book, text = wanted.book, wanted.text
    slots = quote_all(list(book.slots), "material", cell_id("codebooks.slots", book.name))
    unquoted = [code.name for code in book.codes if not code.quoted]
    return PROMPTS.render_prompt(
        PROMPT,
        codebook=quote_value(book.to_yaml, "material", cell_id("codebooks.text", book.name)),
        about=_format_about(text.context),
        one=book.choose == "one",
        slots={slot: text.slots[slot] for slot in slots},
        unquoted=quote_all(unquoted, "material", cell_id("codebooks.codes", book.name)),
        answer_format=wanted.describe_format({}),
    )


def _format_about(about: Mapping[str, str]) -> str:
    """Return what a question refers to as JSON in lines; the names are the study's own words."""
    lines = [
        concatenate_texts((f'  "{escape_json(name)}": "', escape_json(part), '"'), plain=None)
        for name, part in about.items()
    ]
    return concatenate_texts(("{\n", join_texts(",\n", lines), "\n}"), plain=None) if lines else ""


def load_codebook(session: Session[Any], path: Path, settings: CodingSettings) -> Codebook:
    """The codebook of the study, or the user's own of the same file name in its place."""
    if settings.codebooks is not None:
        own = session.study_folder / Path(settings.codebooks).expanduser() / path.name
        if own.exists():
            return read_codebook(own)
    return read_codebook(path)


def draw_sample(
    seed: int, book: Codebook, texts: Sequence[TextToCode], size: int
) -> frozenset[str]:
    """The ids of the texts that a second coder codes, drawn by the seed of the run."""
    rng = generator(seed, ("coding", book.name, "sample"))
    chosen = rng.permutation(len(texts))[:size]
    return frozenset(texts[int(item_id)].id for item_id in chosen)


def require_unique_texts(texts: Sequence[TextToCode], book: Codebook) -> None:
    """Raise ProtocolError for two texts of one id, or one that lacks the values of a slot."""
    seen: set[str] = set()
    for text in texts:
        if text.id in seen:
            raise ProtocolError(f"coding by {book.name}: duplicate text id {text.id!r}")
        seen.add(text.id)
        if lacking := [slot for slot in book.slots if not text.slots.get(slot)]:
            raise ProtocolError(f"coding by {book.name}: {text.id} has no values of {lacking[0]!r}")


class CoderInfo(NamedTuple):
    """Who coded: as what (coder, second_coder, rule), which model, of which kind."""

    coder_role: str
    kind: str
    name: str


def record_codes(
    scope: Scope, book: Codebook, text: TextToCode, codes: Iterable[AssignedCode], who: CoderInfo
) -> None:
    """Add the codes of one text to the table; a text in which no code applies has a row too."""
    for each in tuple(codes) or (AssignedCode(NO_CODE_LABEL),):
        scope.record(
            CodeRow(
                codebook=book.name,
                text_id=text.id,
                participant_id=text.participant_id,
                code=each.code or None,
                of=dict(each.slots),
                quote=each.quote or None,
                by=who.coder_role,
                coder=who.name,
                coder_kind=who.kind,
                refused=each.rejection_reason or None,
            )
        )


# --- reading a reply ---------------------------------------------------------------------------


class _CodeReply(BaseModel):
    """A code as a model gives it; slots are further fields."""

    model_config = pin_schema(
        "_Item", "A code as a model gives it; slots are further fields.", ConfigDict(extra="allow")
    )

    code: str
    quote: str | None = ""


@dataclass(frozen=True)
class CodesAnswer(AnswerType[tuple[AssignedCode, ...]]):
    """The answer type of a coder. Unreadable while a code, a slot or a quote is wrong, so that it
    is asked for again; `salvage_reply` then keeps what stands."""

    book: Codebook
    text: TextToCode
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
                    "enum": [*self.text.slots[slot], ALL_SLOT_VALUES],
                    "description": f"one of its values, or {ALL_SLOT_VALUES}",
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
        return (
            with_ways_out(self.book.code_names)
            if self.book.choose == "one"
            else self.book.code_names
        )

    def parse_reply(
        self, reply: str
    ) -> ParsedAnswer[tuple[AssignedCode, ...]] | ParseFailure | Missing:
        read = JsonList(_CodeReply, name="codes").parse_reply(reply)
        if not isinstance(read, ParsedAnswer):
            return read
        ways_out = [way for item in read.value if (way := self._way_out(item)) is not None]
        coded = [item for item in read.value if self._way_out(item) is None]
        if ways_out and not coded:
            return ways_out[0]
        codes = self._check_items(coded)
        problems = [
            assigned_code.rejection_reason
            for assigned_code in codes
            if assigned_code.rejection_reason
        ]
        problems += [
            f"{repair.original!r} could not be read" for repair in read.repairs if repair.is_dropped
        ]
        if problems or (self.book.choose == "one" and not codes):
            first = "; ".join(problems[:3]) or "no code was given"
            return ParseFailure(
                f"Not every code can be taken: {first}. Reply with the whole JSON object again, "
                "each quote copied from the text letter by letter."
            )
        return ParsedAnswer(codes, read.parse_step, read.repairs)

    def salvage_reply(self, reply: str) -> ParsedAnswer[tuple[AssignedCode, ...]] | None:
        """The codes of a reply that is still not right, the wrong ones with the reason."""
        read = JsonList(_CodeReply, name="codes").parse_reply(reply)
        codes = self._check_items(read.value) if isinstance(read, ParsedAnswer) else ()
        return ParsedAnswer(codes, "exact") if codes else None

    def _way_out(self, item: _CodeReply) -> Missing | None:
        return None if self.book.find_code(item.code) else parse_way_out(item.code)

    def _check_items(self, items: Iterable[_CodeReply]) -> tuple[AssignedCode, ...]:
        found: dict[tuple[object, ...], AssignedCode] = {}
        for item in items:
            for each in self._check_item(item):
                said_of = tuple(each.slots.items())
                place = said_of if self.book.choose == "one" else (each.code, said_of, each.quote)
                other = found.setdefault(place, each)
                if (
                    other.code != each.code
                    and not other.rejection_reason
                    and not each.rejection_reason
                ):
                    both = f"{other.code!r} and {each.code!r} exclude each other"
                    found[place] = other._replace(rejection_reason=both)
        return tuple(found.values())

    def _check_item(self, item: _CodeReply) -> list[AssignedCode]:
        known, quote = self.book.find_code(item.code), (item.quote or "").strip()
        if known is None:
            return [
                AssignedCode(
                    item.code, quote, rejection_reason=f"{item.code!r} is not in the codebook"
                )
            ]
        values = [self._slot_values(slot, item) for slot in self.book.slots]
        if not all(values):
            slot = next(
                slot for slot, value in zip(self.book.slots, values, strict=True) if not value
            )
            refused = f"{slot}: {getattr(item, slot, None)!r} is none of its values"
            return [AssignedCode(known.name, quote, rejection_reason=refused)]
        wrong = (
            "" if not known.quoted or quote_occurs_in(quote, self.text.text) else QUOTE_NOT_FOUND
        )
        shown = quote if len(quote) <= MAX_SHOWN else f"{quote[:MAX_SHOWN]}…"
        refused = f"{wrong}: {shown!r}" if wrong else ""
        return [
            AssignedCode(known.name, quote, dict(zip(self.book.slots, each, strict=True)), refused)
            for each in itertools.product(*values)
        ]

    def _slot_values(self, slot: str, item: _CodeReply) -> list[str]:
        """The values of a slot that an item names: one, several, or all."""
        said = getattr(item, slot, None)
        wanted = {_normalise_quote(str(s)) for s in (said if isinstance(said, list) else [said])}
        known = list(self.text.slots[slot])
        named = [value for value in known if _normalise_quote(value) in wanted]
        return named or (known if ALL_SLOT_VALUES in wanted else [])


def quote_occurs_in(quote: str, text: str) -> bool:
    """Whether a quote is in a text, as whole words; case, spaces, quotation marks and dashes fold.

    A quote without a letter or a digit shows nothing.
    """
    wanted, whole = _normalise_quote(quote).strip("\"'.… "), _normalise_quote(text)
    if not re.search(r"\w", wanted):
        return False
    found = (match.span() for match in re.finditer(re.escape(wanted), whole))
    return any(
        not _joins_word(whole[start - 1 : start], wanted[0])
        and not _joins_word(wanted[-1], whole[end : end + 1])
        for start, end in found
    )


def _joins_word(before: str, after: str) -> bool:
    """Whether two characters belong to one word. Scripts whose letters have no case are taken to
    write without spaces, as Chinese and Thai do."""
    return all(
        column.isdecimal() or column.islower() or column == "_" for column in (before, after)
    )


def _normalise_quote(text: str) -> str:
    return re.sub(r"\s+", " ", normalise_text(text))
