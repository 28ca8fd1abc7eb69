"""Ask a model for the codes of a text, each with a quote. Reject codes with an invented quote."""

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

from folkmoot.conversation.answer_format import match_field_names
from folkmoot.conversation.answer_types import (
    DECLINED,
    AnswerType,
    JsonList,
    Missing,
    ParsedAnswer,
    ParseFailure,
    parse_way_out,
    pin_schema,
    with_ways_out,
)
from folkmoot.conversation.json_replies import REPAIRED, has_open_brackets, json_candidates
from folkmoot.conversation.json_schemas import object_schema
from folkmoot.conversation.lenient_fields import is_declined
from folkmoot.conversation.prompts import PromptLibrary, escape_json
from folkmoot.conversation.reply_forms import normalise_text
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.session.session import Scope, Session
from folkmoot.engine.settings.config import StudyConfig
from folkmoot.engine.settings.yaml_tree import BOOLEAN_WORDS
from folkmoot.errors import InputError, ProtocolError
from folkmoot.field_notes import field_notes
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

# The prompt file's name. Its hash is sealed, so that a changed prompt is a different coding.
PROMPT = "coder"
PROMPTS = PromptLibrary(Path(__file__).parent / "prompts")
QUOTE_NOT_FOUND = "the quote is not in the text"
# Characters of a quote that a re-ask repeats. Models sometimes quote whole paragraphs.
MAX_SHOWN = 80


class CodingSettings(BaseModel):
    """The key `coding:` of a study file. `coding: off` is short for `coding: {enabled: off}`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    enabled: bool = Field(
        True,
        description="code free text as a stage of the run",
        json_schema_extra=field_notes(label="Code in this run"),
    )
    sample: int = Field(
        50,
        ge=0,
        description="maximum of texts per codebook for the second coder or a human",
        json_schema_extra=field_notes(label="Texts coded twice"),
    )
    codebooks: str | None = Field(
        None,
        min_length=1,
        description="folder of your own codebooks that replace shipped ones",
        json_schema_extra=field_notes(label="Folder of your own codebooks"),
    )


def _expand_switch(value: object) -> object:
    value = BOOLEAN_WORDS.get(value.lower(), value) if isinstance(value, str) else value
    return {"enabled": value} if isinstance(value, bool) else value


class CodingStudyConfig(StudyConfig):
    """The settings of a study with free text to code.

    The roles `coder` and `second_coder` under `models:` name the coders' models. Without
    `second_coder` there is no second coder.
    """

    SECTIONS: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "Coding of free text": ("coding",),
        **StudyConfig.SECTIONS,
    }

    coding: Annotated[
        CodingSettings,
        BeforeValidator(_expand_switch, json_schema_input_type=CodingSettings | bool),
    ] = Field(
        CodingSettings(),
        description="how free text is coded; `off` leaves it for later",
        json_schema_extra=field_notes(label="Coding of free text"),
    )

    @model_validator(mode="after")
    def _check_user_codebooks(self, info: ValidationInfo) -> CodingStudyConfig:
        # Check at load time. Coding is the last stage, so a later error would come after the
        # researcher has paid for the run.
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
                f"models.{SECOND_CODER_ROLE}: {second} is already the coder, and the agreement of "
                "a model with itself is no evidence for its codes; name another model, or remove "
                "the key and let a human code the sample (`folkmoot codes RUN --sheet FILE "
                "--blind`)"
            )
        return self


def same_model(first: str, second: str, endpoints: Endpoints) -> bool:
    """Return whether two names refer to the same model."""
    try:
        return resolve_model(first, endpoints).name == resolve_model(second, endpoints).name
    except InputError:
        # The general check of model names reports an unknown name.
        return first == second


@dataclass(frozen=True)
class TextToCode:
    """A text to be coded.

    Join several utterances with `provenance.join_texts`, so that their sources stay known.
    """

    # Unique within the codebook. The study finds the place of the text in the run by it.
    id: str
    text: str
    participant_id: str | None = None
    # Texts by name that the codebook's question refers to. The coder sees them, so they must not
    # reveal the condition.
    context: Mapping[str, str] = field(default_factory=dict)
    # For each slot of the codebook (what a code can be about), its permitted values.
    slots: Mapping[str, Sequence[str]] = field(default_factory=dict)


class AssignedCode(NamedTuple):
    """One code that a coder assigned to a text."""

    code: str
    quote: str = ""
    # What the code is about: maps a slot of the codebook to its value.
    slots: Mapping[str, str] = {}
    # Why the code does not count, or empty if it counts.
    rejection_reason: str = ""


RuleCoder = Callable[[TextToCode], Iterable[AssignedCode]]


async def code_texts(
    session: Session[Any],
    codebook: Path,
    texts: Iterable[TextToCode],
    *,
    rule: RuleCoder | None = None,
) -> dict[str, tuple[AssignedCode, ...]]:
    """Code texts with a codebook and return a map from text id to valid codes.

    - `rule`: a function that codes texts by phrases, for comparison with the model.

    Texts without an answer are left out.
    If `coding:` is off, no model is asked and the result is empty.
    """
    # All texts are recorded in the table `texts`, and all codes in `codes`. Findings must not use
    # the codes of a rule.
    settings = session.config.coding
    book = load_codebook(session, codebook, settings)
    all_texts = list(texts)
    require_unique_texts(all_texts, book)
    nonempty = [text_to_code for text_to_code in all_texts if text_to_code.text.strip()]
    # Only texts with words can be sampled: a human or second coder has nothing to do for an empty
    # one.
    sample = draw_sample(session.seed, book, nonempty, settings.sample)
    # Seal the codebook: a later coding must use exactly this version.
    await session.seal(f"codebook {book.name}", book.to_json())
    session.record(
        CodebookRow(
            codebook=book.name,
            text=book.yaml_text,
            codes=list(book.code_names),
            slots=list(book.slots),
        )
    )
    for text in all_texts:
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
        for text in nonempty:
            record_codes(
                session, book, text, rule(text), CoderInfo(RULE_ROLE, RULE_ROLE, RULE_ROLE)
            )
    # `folkmoot codes` can code the recorded texts after the run.
    if not settings.enabled:
        return {}
    return await code_with_models(session, book, all_texts, sample)


async def code_with_models(
    session: Session[Any], book: Codebook, texts: Sequence[TextToCode], sample: frozenset[str]
) -> dict[str, tuple[AssignedCode, ...]]:
    """Ask the coder for codes of all texts, and return a map from text id to valid codes.

    `sample`: the texts for the second coder, if there is one.
    """
    # Seal the sample before the first call. It must not depend on the codes.
    prompt = {"prompt": PROMPTS.hashes()[PROMPT], "sample": sorted(sample)}
    await session.seal(f"coding {book.name}", prompt)
    codes_by_text = await _code_all(session, book, texts, CODER_ROLE)
    if SECOND_CODER_ROLE not in session.config.models:
        return codes_by_text
    first, second = session.resolve_model(CODER_ROLE), session.resolve_model(SECOND_CODER_ROLE)
    # `--model` on the command line may give both roles the same model after the file was checked.
    if same_model(first, second, session.config.endpoints):
        session.warn(
            f"coder and second coder are the same model ({first}), so there is no second coder"
        )
    else:
        await _code_all(
            session,
            book,
            [text_to_code for text_to_code in texts if text_to_code.id in sample],
            SECOND_CODER_ROLE,
        )
    return codes_by_text


async def _code_all(
    session: Session[Any], book: Codebook, texts: Sequence[TextToCode], role: str
) -> dict[str, tuple[AssignedCode, ...]]:
    kind = "embedded" if session.is_synthetic(role) else "model"
    coder = CoderInfo(role, kind, session.resolve_model(role))

    async def code_one_text(scope: Scope, text: TextToCode) -> tuple[AssignedCode, ...] | None:
        # An empty text gets a row without a call, so that every text has a result.
        codes: tuple[AssignedCode, ...] = (AssignedCode("", rejection_reason="no text"),)
        if text.text.strip():
            codes = await ask_for_codes(scope, role, book, text)
        record_codes(scope, book, text, codes, coder)
        accepted = tuple(
            assigned_code for assigned_code in codes if not assigned_code.rejection_reason
        )
        return accepted if accepted or not codes else None

    # Each coder has a separate stage: adding a second coder keeps the addresses of the first
    # coder's calls.
    stage = session.child("coding" if role == CODER_ROLE else "second_coding", book.name)
    # `map` keys its results by parts of addresses, not by text id, but keeps their order.
    coded = (await stage.map(texts, code_one_text)).values()
    return {
        text_to_code.id: codes
        for text_to_code, codes in zip(texts, coded, strict=True)
        if codes is not None
    }


async def ask_for_codes(
    scope: Scope, role: str, book: Codebook, text: TextToCode
) -> tuple[AssignedCode, ...]:
    """Return a model's codes for one text.

    A code that is still invalid after the re-asks has a `rejection_reason`.
    """
    text = quote_text(book, text)
    answer_type = CodesAnswer(book, text)
    coder = Speaker(role, role=role, system=build_coder_prompt(answer_type))
    # Temperature 0: a coder should assign the same codes to the same text.
    answer = await scope.ask(
        coder, text.text, answer_type=answer_type, temperature=0.0, about=book.question
    )
    if not isinstance(answer, Missing):
        return answer
    return (AssignedCode("", rejection_reason=answer.reason),)


def quote_text(book: Codebook, text: TextToCode) -> TextToCode:
    """Return a copy of `text` in which each part is marked as coming from the table `texts`."""
    # Parts that already have recorded sources keep them.

    def quote_part(part: str, column: str, speaker: str = "") -> str:
        has_source = isinstance(part, SourcedText)
        id = cell_id(f"texts.{column}", book.name, text.id)
        return part if has_source else quote_value(part, "material", id, speaker)

    quoted_text = quote_part(text.text, "text", text.participant_id or "")
    if source_of(quoted_text) is None:
        quoted_text = enclose_text(
            quoted_text, Source("material", cell_id("texts.text", book.name, text.id))
        )
    return replace(
        text,
        text=quoted_text,
        context={name: quote_part(part, "about") for name, part in text.context.items()},
        slots={
            slot: [quote_part(value, "slots") for value in values]
            for slot, values in text.slots.items()
        },
    )


def build_coder_prompt(answer_type: CodesAnswer) -> str:
    """Return the system prompt of a coder."""
    # It holds the codebook and the context of its question.
    book, text = answer_type.book, answer_type.text
    slots = quote_all(list(book.slots), "material", cell_id("codebooks.slots", book.name))
    unquoted = [code.name for code in book.codes if not code.quoted]
    return PROMPTS.render_prompt(
        PROMPT,
        codebook=quote_value(book.yaml_text, "material", cell_id("codebooks.text", book.name)),
        about=_format_about(text.context),
        one=book.choose == "one",
        slots={slot: text.slots[slot] for slot in slots},
        unquoted=quote_all(unquoted, "material", cell_id("codebooks.codes", book.name)),
        answer_format=answer_type.describe_format({}),
    )


def _format_about(about: Mapping[str, str]) -> str:
    lines = [
        # `json.dumps` would lose the sources, so the JSON is assembled from escaped parts.
        concatenate_texts((f'  "{escape_json(name)}": "', escape_json(part), '"'), plain=None)
        for name, part in about.items()
    ]
    return concatenate_texts(("{\n", join_texts(",\n", lines), "\n}"), plain=None) if lines else ""


def load_codebook(session: Session[Any], path: Path, settings: CodingSettings) -> Codebook:
    """Return the researcher's version of a codebook, or otherwise the codebook at `path`."""
    # The researcher's folder replaces single codebooks. Files that it lacks come from the study.
    if settings.codebooks is not None:
        user_path = session.study_folder / Path(settings.codebooks).expanduser() / path.name
        if user_path.exists():
            return read_codebook(user_path)
    return read_codebook(path)


def draw_sample(
    seed: int, book: Codebook, texts: Sequence[TextToCode], size: int
) -> frozenset[str]:
    """Return the ids of the texts for the second coder, drawn with the run's seed."""
    rng = generator(seed, ("coding", book.name, "sample"))
    # A prefix of a permutation, so that a smaller sample is part of a larger one.
    chosen = rng.permutation(len(texts))[:size]
    return frozenset(texts[int(index)].id for index in chosen)


def require_unique_texts(texts: Sequence[TextToCode], book: Codebook) -> None:
    """Raise ProtocolError if two texts share an id, or a text lacks values for a slot."""
    known_ids: set[str] = set()
    for text in texts:
        if text.id in known_ids:
            raise ProtocolError(f"coding by {book.name}: duplicate text id {text.id!r}")
        known_ids.add(text.id)
        if empty_slots := [slot for slot in book.slots if not text.slots.get(slot)]:
            raise ProtocolError(
                f"coding by {book.name}: {text.id} has no values of {empty_slots[0]!r}"
            )


class CoderInfo(NamedTuple):
    """A coder with its role, kind and name."""

    # As the table `codes` names it. Roles are coder, second_coder and rule.

    coder_role: str
    kind: str
    name: str


def record_codes(
    scope: Scope, book: Codebook, text: TextToCode, codes: Iterable[AssignedCode], coder: CoderInfo
) -> None:
    """Add a row to the table `codes` for each code of one text."""
    # If no code applies, the text gets one row that says so.
    for assigned in tuple(codes) or (AssignedCode(NO_CODE_LABEL),):
        scope.record(
            CodeRow(
                codebook=book.name,
                text_id=text.id,
                participant_id=text.participant_id,
                code=assigned.code or None,
                of=dict(assigned.slots),
                quote=assigned.quote or None,
                by=coder.coder_role,
                coder=coder.name,
                coder_kind=coder.kind,
                refused=assigned.rejection_reason or None,
            )
        )


# --- reading a reply ---------------------------------------------------------------------------


class _CodeReply(BaseModel):
    """One code in a model's reply. The slots are additional fields."""

    # The description is part of the schema that is sent to the model. It is pinned to the text that
    # earlier runs have journaled.
    model_config = pin_schema(
        "_Item", "A code as a model gives it; slots are further fields.", ConfigDict(extra="allow")
    )

    code: str
    quote: str | None = ""

    @model_validator(mode="before")
    @classmethod
    def _read_declined_code(cls, raw: object) -> object:
        return {**raw, "code": DECLINED} if isinstance(raw, dict) and is_declined(raw) else raw


@dataclass(frozen=True)
class CodesAnswer(AnswerType[tuple[AssignedCode, ...]]):
    """The answer type of a coder.

    A wrong code, slot or quote is a parse failure, so the coder is asked again. After the last
    re-ask, `salvage_reply` keeps the valid codes.
    """

    book: Codebook
    text: TextToCode
    kind: str = "json"

    @property
    def schema(self) -> dict[str, object]:
        """The JSON schema of a reply: a list of codes, each with slots and quote."""
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
        # With `choose: any` there are no ways out such as declining, because an empty list states
        # that no code applies.
        return (
            with_ways_out(self.book.code_names)
            if self.book.choose == "one"
            else self.book.code_names
        )

    def parse_reply(
        self, reply: str
    ) -> ParsedAnswer[tuple[AssignedCode, ...]] | ParseFailure | Missing:
        """Return the codes of a reply, a missing answer, or the problems for a re-ask."""
        parsed = self._parse_items(reply)
        if not isinstance(parsed, ParsedAnswer):
            return parsed
        # A way out counts only if the coder gave no code besides.
        ways_out = [way for item in parsed.value if (way := self._way_out(item)) is not None]
        coded = [item for item in parsed.value if self._way_out(item) is None]
        if ways_out and not coded:
            return ways_out[0]
        codes = self._check_items(coded)
        problems = [
            assigned_code.rejection_reason
            for assigned_code in codes
            if assigned_code.rejection_reason
        ]
        # The problem is cut as in earlier versions, so that their runs can be resumed.
        problems += [
            f"{repair.original[:80]!r} could not be read"
            for repair in parsed.repairs
            if repair.is_dropped
        ]
        if problems or (self.book.choose == "one" and not codes):
            # Three problems are enough for a re-ask. A long list would distract small models.
            first = "; ".join(problems[:3]) or "no code was given"
            return ParseFailure(
                f"Not every code can be taken: {first}. Reply with the whole JSON object again, "
                "each quote copied from the text letter by letter."
            )
        return ParsedAnswer(codes, parsed.parse_step, parsed.repairs)

    def salvage_reply(self, reply: str) -> ParsedAnswer[tuple[AssignedCode, ...]] | None:
        """Return the codes of a reply that is still invalid after the last re-ask.

        Each wrong code has a `rejection_reason`.
        """
        parsed = self._parse_items(reply)
        codes = self._check_items(parsed.value) if isinstance(parsed, ParsedAnswer) else ()
        return ParsedAnswer(codes, "exact") if codes else None

    def _parse_items(
        self, reply: str
    ) -> ParsedAnswer[tuple[_CodeReply, ...]] | ParseFailure | Missing:
        try:
            for _, value in json_candidates(reply, "{"):
                if isinstance(value, dict) and is_declined(value):
                    return Missing(DECLINED)
        except ValueError as error:
            return ParseFailure(f"The JSON did not fit: {error}.")
        parsed = JsonList(_CodeReply, name="codes").parse_reply(reply)
        if not isinstance(parsed, ParsedAnswer):
            return parsed
        # A reply that was cut off may lack further codes.
        if parsed.parse_step == REPAIRED and has_open_brackets(reply):
            return ParseFailure(
                "The JSON object was not complete. Reply with the whole JSON object again."
            )
        # `_CodeReply` names no slots, so their names are matched here.
        values = [item.model_dump() for item in parsed.value]
        matched, _ = match_field_names({"codes": values}, self.schema)
        assert isinstance(matched, dict)
        items = tuple(map(_CodeReply.model_validate, matched["codes"]))
        return parsed._replace(value=items)

    def _way_out(self, item: _CodeReply) -> Missing | None:
        return None if self.book.find_code(item.code) else parse_way_out(item.code)

    def _check_items(self, items: Iterable[_CodeReply]) -> tuple[AssignedCode, ...]:
        # Models repeat codes, and a repetition must not count twice.
        codes_by_key: dict[tuple[object, ...], AssignedCode] = {}
        for item in items:
            for assigned in self._check_item(item):
                slot_values = tuple(assigned.slots.items())
                # With `choose: one` each combination of slot values has one code. Otherwise only
                # exact repetitions are merged.
                key = (
                    slot_values
                    if self.book.choose == "one"
                    else (assigned.code, slot_values, assigned.quote)
                )
                other = codes_by_key.setdefault(key, assigned)
                if (
                    other.code != assigned.code
                    and not other.rejection_reason
                    and not assigned.rejection_reason
                ):
                    # Keep the first code and mark it as rejected: to choose one of two would be a
                    # guess.
                    both = f"{other.code!r} and {assigned.code!r} exclude each other"
                    codes_by_key[key] = other._replace(rejection_reason=both)
        return tuple(codes_by_key.values())

    def _check_item(self, item: _CodeReply) -> list[AssignedCode]:
        code, quote = self.book.find_code(item.code), (item.quote or "").strip()
        if code is None:
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
            rejection_reason = (
                f"{slot}: {(item.model_extra or {}).get(slot)!r} is none of its values"
            )
            return [AssignedCode(code.name, quote, rejection_reason=rejection_reason)]
        problem = (
            "" if not code.quoted or quote_occurs_in(quote, self.text.text) else QUOTE_NOT_FOUND
        )
        shown = quote if len(quote) <= MAX_SHOWN else f"{quote[:MAX_SHOWN]}…"
        rejection_reason = f"{problem}: {shown!r}" if problem else ""
        return [
            AssignedCode(
                code.name,
                quote,
                dict(zip(self.book.slots, combination, strict=True)),
                rejection_reason,
            )
            for combination in itertools.product(*values)
        ]

    def _slot_values(self, slot: str, item: _CodeReply) -> list[str]:
        reply_value = (item.model_extra or {}).get(slot)
        reply_values = {
            _normalise_quote(str(value))
            for value in (reply_value if isinstance(reply_value, list) else [reply_value])
        }
        permitted = list(self.text.slots[slot])
        named_values = [value for value in permitted if _normalise_quote(value) in reply_values]
        # A slot may have a value called "all". An exact name wins over the word for all values.
        return named_values or (permitted if ALL_SLOT_VALUES in reply_values else [])


def quote_occurs_in(quote: str, text: str) -> bool:
    """Return whether a quote occurs in a text as whole words."""
    # Case, spaces, quotation marks and dashes are normalised. A quote without a letter or digit
    # counts as not found, because it shows nothing.

    # Models often add quotation marks, an ellipsis or a full stop at the ends of a quote.
    normalised_quote, normalised_text = (
        _normalise_quote(quote).strip("\"'.… "),
        _normalise_quote(text),
    )
    if not re.search(r"\w", normalised_quote):
        return False
    matches = (match.span() for match in re.finditer(re.escape(normalised_quote), normalised_text))
    return any(
        not _joins_word(normalised_text[start - 1 : start], normalised_quote[0])
        and not _joins_word(normalised_quote[-1], normalised_text[end : end + 1])
        for start, end in matches
    )


def _joins_word(before: str, after: str) -> bool:
    # Scripts such as Chinese and Thai are written without spaces, so letters without case count as
    # separate.
    return all(
        character.isdecimal() or character.islower() or character == "_"
        for character in (before, after)
    )


def _normalise_quote(text: str) -> str:
    return re.sub(r"\s+", " ", normalise_text(text))
