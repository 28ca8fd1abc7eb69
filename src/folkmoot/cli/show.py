"""`folkmoot show`: print the participants of a run, or one participant, conversation or call."""
# An id is the key of a conversation (`set01_lv4`, `family_01/C4`) or of a participant (`p_0001`,
# `set01_lv4/A17`). It may also be the id of another speaker or the address of a call. A study type
# can add lines and further ids with its `Study.render_run`.

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import polars as pl
from polars.exceptions import PolarsError
from rich.text import Text
from starlette.exceptions import HTTPException

from folkmoot.cli.console import output_console, print_warning
from folkmoot.cli.results import find_grid, find_run, show_grid, warn_of_pending_withdrawals
from folkmoot.cli.tables import synthetic_panel
from folkmoot.engine.journal.journal import unescape_address_part
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.seats.utterances import UTTERANCES
from folkmoot.engine.session.folder_access import open_run
from folkmoot.engine.study.study import find_study_of_run
from folkmoot.errors import InputError, Problem, StorageError
from folkmoot.hidden_characters import without_hidden
from folkmoot.hints import capitalise, command_line, shorten
from folkmoot.measures.inference.estimates import format_count
from folkmoot.storage.findings import column_heading, format_cell
from folkmoot.storage.run_folder import JOURNAL, RunFolder, find_main_run
from folkmoot.storage.tables import COMPLETE, has_endings
from folkmoot.view.people import names_in, people_of, table_of
from folkmoot.view.person import find_person
from folkmoot.view.rooms import Line, Room, find_rooms, in_room, room_columns, spoken_at, spoken_by
from folkmoot.view.sources import Legend, Piece, Sourced
from folkmoot.view.talk import CallView, base_of, build_call_view, is_within, place_of

# Conversations or participants that an overview lists.
MAX_LISTED_ITEMS = 40
# Cells of a participant in an overview.
MAX_CELLS = 4
# In characters. A longer outcome is a reply that was already shown.
MAX_OUTCOME_CHARACTERS = 100
# Ids in one entry of a legend.
MAX_IDS = 12
# Ids that the message about an unknown id suggests.
MAX_HINT_IDS = 4
SPEAKER_STYLES = (
    "cyan", "green", "magenta", "yellow", "blue", "bright_cyan", "bright_green", "bright_magenta",
)  # fmt: skip
KIND_STYLES = {
    "persona": "yellow", "material": "green", "option": "blue", "proposal": "magenta",
    "summary": "magenta", "value": "bright_black", "unattributed": "bold red",
}  # fmt: skip


def show_command(
    name: str, id: str | None, *, prompts: bool = False, addresses: bool = False
) -> None:
    """Print a run, or the part of the run with this id."""
    # `prompts` prints prompts by source. `addresses` prints the ids of utterances.
    if (grid := find_grid(name)) is not None:
        show_grid(grid)
        return
    run = open_run(find_run(name).path)
    console = output_console()
    if run.mark:
        console.print(synthetic_panel(note=run.provenance_note, mark=run.mark))
    warn_of_pending_withdrawals(run)
    # Output to a file or a pipe is not wrapped, so that other programs get whole lines.
    if prompts and addresses:
        raise InputError("give one of --prompts and --addresses")
    lines = list_addresses(run, id) if addresses else render_run_lines(run, id, prompts=prompts)
    for line in lines:
        console.print(line, soft_wrap=not console.is_terminal)


def render_run_lines(
    run: RunFolder, id: str | None = None, *, prompts: bool = False
) -> Iterator[Text]:
    """Yield the lines that `folkmoot show` prints.

    - `id`: a conversation, participant or address of a call. None for an overview of the run.
    - `prompts`: True to show the prompts, with the source of each text.

    Raises InputError if the run has no such id.
    """
    if prompts and id is None:
        raise InputError("--prompts: name a participant, a conversation or an address")
    try:
        if prompts:
            yield from _render_prompts(run, id or "")
        elif id is None:
            yield from _render_overview(run)
        else:
            yield from _show_id(run, id)
    except PolarsError as error:
        raise StorageError(f"{run.path}: a table cannot be read: {error}") from error


def list_addresses(run: RunFolder, id: str | None = None) -> Iterator[Text]:
    """Yield one line for each call: its address, the speaker and the reply."""
    # Each utterance of a reply for several speakers has a separate line.
    with _open_journal(run) as journal:
        wanted_addresses = set(_find_addresses(run, journal, id)) if id is not None else None
        if wanted_addresses is not None and not wanted_addresses:
            # The first line raises InputError if the run has no such id.
            next(_show_id(run, id or ""), None)
        if not run.has_table("answers"):
            return
        utterances_by_address: dict[str, list[tuple[str, str, str]]] = {}
        if run.has_table(UTTERANCES):
            columns = ("address", "utterance_id", "speaker_id", "text")
            for address, *utterance in run.rows(UTTERANCES, *columns):
                utterances_by_address.setdefault(address, []).append(
                    (utterance[0], utterance[1], utterance[2] or "")
                )
        for address, speaker, recorded in run.rows("answers", "address", "speaker_id", "recorded"):
            if wanted_addresses is None or address in wanted_addresses:
                reply_utterances = utterances_by_address.get(address) or [
                    (address, speaker, recorded or _read_last_reply(journal, address))
                ]
                for utterance_id, speaker_id, text in reply_utterances:
                    shown_id = utterance_id if len(reply_utterances) > 1 else address
                    yield _join_line(
                        (shown_id, "bold"), f"  {speaker_id}: ", (shorten(text), "dim")
                    )


def _read_last_reply(journal: JournalReader, address: str) -> str:
    # The tables hold no text of a JSON answer.
    asked_addresses = journal.list_ask_addresses(address)
    last = journal.entry_at(asked_addresses[-1], expand_texts=False) if asked_addresses else None
    return last.reply if last is not None else ""


# --- a run ---------------------------------------------------------------------------------------


def _render_overview(run: RunFolder) -> Iterator[Text]:
    state = "" if run.is_finished else " · not finished"
    yield _join_line((run.id, "bold"), f" · {run.study}{state}")
    # Raise an error now if the run has no journal, before an empty overview is shown.
    _open_journal(run).close()
    tables = (f"{name} {run.read_table(name).height:,}" for name in run.table_names())
    yield _join_line((f"Tables: {', '.join(tables) or 'none yet'}", "dim"))
    columns = room_columns(run)
    rooms = find_rooms(run, columns) if columns else []
    if rooms:
        yield from _render_title(f"Conversations ({len(rooms):,})")
    for room in rooms[:MAX_LISTED_ITEMS]:
        counts_text = (
            f"{format_count(room.utterances, 'utterance')} by "
            f"{format_count(room.speakers, 'speaker')}"
        )
        yield _join_line(("/".join(room.key), "bold"), f"  {counts_text}")
    yield from _render_remaining_count(len(rooms))
    participants = table_of(run, "", "", 0, MAX_LISTED_ITEMS)
    if participants.rows:
        rows = f" in {participants.all:,} rows" * (participants.all > participants.all_people)
        yield from _render_title(f"Participants ({participants.all_people:,}{rows})")
    people = people_of(run)
    ends = bool(people.table) and has_endings(run.scan_table(people.table))
    excluded_columns = {*people.key_columns, *(["status"] if ends else [])}
    shown_columns = [column for column in participants.columns if column not in excluded_columns][
        :MAX_CELLS
    ]
    for key, row in participants.rows:
        cells = (
            f"{column_heading(column)} {format_cell(row[column], column)}"
            for column in shown_columns
            if row[column] is not None
        )
        status = row.get("status") or COMPLETE
        problem = f"  {status}" if ends and status != COMPLETE else ""
        yield _join_line(
            (unescape_address_part(key), "bold"), f"  {', '.join(cells)}", (problem, "red")
        )
    yield from _render_remaining_count(participants.all)
    yield from _render_study_additions(run, ())
    example = (
        "/".join(rooms[0].key) if rooms else participants.rows[0][0] if participants.rows else "ID"
    )
    yield _join_line((f"\nRead one: {command_line('show', run.path, example)}", "dim"))


def _render_remaining_count(count: int) -> Iterator[Text]:
    if count > MAX_LISTED_ITEMS:
        yield _join_line((f"… and {count - MAX_LISTED_ITEMS:,} more", "dim"))


def _render_study_additions(run: RunFolder, key: Sequence[str]) -> Iterator[Text]:
    # `key` is that of a conversation or a participant, or () for the whole run. There are no lines
    # if an unfinished run lacks the needed files.
    try:
        study = find_study_of_run(run)
    except InputError as error:
        # Controls and later codings have no study type of their own that could add lines.
        if find_main_run(run.path) is None:
            print_warning(f"{error} The table is left out.")
        return
    try:
        for line in study.render_run(run, key):
            yield Text.from_markup(without_hidden(line))
    except StorageError:
        if run.is_finished:
            raise


# --- one of its conversations or participants ----------------------------------------------------


def _show_id(run: RunFolder, id: str) -> Iterator[Text]:
    with _open_journal(run) as journal:
        if build_call_view(run, journal, id) is not None:
            yield from _render_prompts(run, id)
        elif room := _find_room(run, id):
            yield from _render_conversation(run, room, journal)
        else:
            yield from _render_participant(run, id)


def _render_conversation(run: RunFolder, room: Room, journal: JournalReader) -> Iterator[Text]:
    lines = in_room(run, journal, room_columns(run), room.key, names_in(run, room.key))
    private = sum(line.private for line in lines)
    yield _join_line((room.title, "bold"))
    yield from _render_utterances(lines)
    yield from _render_study_additions(run, room.key)
    hint = f"{format_count(private, 'private text')}: see each participant. " if private else ""
    yield _join_line((f"\n{hint}Prompts by source: add --prompts", "dim"))


def _find_room(run: RunFolder, id: str) -> Room | None:
    searched_prefix, columns = f"{id.casefold()}/", room_columns(run)
    rooms = find_rooms(run, columns) if columns else []
    return next(
        (room for room in rooms if f"{'/'.join(room.key)}/".casefold().startswith(searched_prefix)),
        None,
    )


def _render_utterances(lines: Sequence[Line]) -> Iterator[Text]:
    speakers = dict.fromkeys(line.speaker_id for line in lines if not line.leads)
    styles = {
        speaker_id: SPEAKER_STYLES[number % len(SPEAKER_STYLES)]
        for number, speaker_id in enumerate(speakers)
    }
    public_lines = (line for line in lines if not line.private)
    for stage, stage_lines in groupby(public_lines, key=lambda line: line.part):
        yield from _render_title(_sentence_case(stage) or "Talk")
        for line in stage_lines:
            kinds = [
                f"{column_heading(kind)} {', '.join(references)}"
                for kind, references in line.reactions
            ]
            notes = "; ".join((*line.notes, *kinds))
            turn = f"{line.turn:>3} " if line.turn else ""
            speaker = f"{line.speaker}: ", f"bold {styles.get(line.speaker_id, '')}"
            yield _join_line(
                (turn, "dim"), speaker, line.text, (f" ({notes})" if notes else "", "dim")
            )


def _render_participant(run: RunFolder, id: str) -> Iterator[Text]:
    parts = [unescape_address_part(part) for part in id.split("/")]
    try:
        participant = find_person(run, id)
    except HTTPException:
        # A study type may know ids that no table holds.
        study_lines = list(_render_study_additions(run, parts))
        if not study_lines:
            raise _unknown_id_error(run, id) from None
        yield from study_lines
        return
    parts = [unescape_address_part(part) for part in participant.key.split("/")]
    yield _join_line(
        (participant.name, "bold"), f" · {'/'.join(parts)}" if participant.name != id else ""
    )
    facts = (
        f"{column_heading(name)} {format_cell(value, name)}" for name, value in participant.facts
    )
    yield _join_line((", ".join(facts), "dim"))
    for name, text in participant.texts:
        yield _join_line((f"{column_heading(name)}: {text}", "dim"))
    for place, replies in groupby(participant.talk, key=lambda reply: reply.place):
        yield from _render_title(_sentence_case(place) or "Asked")
        for reply in replies:
            style = "bold" if reply.own else "bold cyan"
            fields = "".join(f"\n  {column_heading(name)}: {value}" for name, value in reply.fields)
            missing = f" (no answer: {column_heading(reply.missing)})" if reply.missing else ""
            content = f" {reply.text}" if reply.text else fields
            yield _join_line((f"{reply.speaker}:", style), content, (missing, "red"))
    if participant.decisions:
        yield from _render_title("Decisions")
    for decision in participant.decisions:
        outcome = decision.outcome or "none"
        outcome_text = outcome if len(outcome) <= MAX_OUTCOME_CHARACTERS else "see the reply above"
        yield _join_line(f"{column_heading(decision.name)}: ", (outcome_text, "bold"))
        shown_texts = (f"{shown.kind} ({shown.texts})" for shown in decision.shown if shown.texts)
        if decision.shown:
            yield _join_line(
                (f"  in the prompt: {', '.join(shown_texts) or 'none of the texts'}", "dim")
            )
        for shown in decision.shown:
            if shown.wrong:
                yield _join_line((f"  differs from the design: {shown.kind}", "red"))
    yield from _render_study_additions(run, parts)
    yield _join_line(("\nPrompts by source: add --prompts", "dim"))


def _unknown_id_error(run: RunFolder, id: str) -> InputError:
    columns = room_columns(run)
    conversation_ids = (
        ["/".join(room.key) for room in find_rooms(run, columns)[:MAX_HINT_IDS]] if columns else []
    )
    participant_ids = [
        unescape_address_part(key) for key, _ in table_of(run, "", "", 0, MAX_HINT_IDS).rows
    ]
    hint = f"ids: {', '.join((*conversation_ids, *participant_ids))}, …"
    return InputError(Problem(f"{run.path}: {id} is not in this run", hint=hint))


# --- prompts by source ---------------------------------------------------------------------------


def _render_prompts(run: RunFolder, id: str) -> Iterator[Text]:
    with _open_journal(run) as journal:
        addresses = _find_addresses(run, journal, id)
        for call in filter(None, (build_call_view(run, journal, address) for address in addresses)):
            yield from _render_call(call)
    if not addresses:
        # The first line raises InputError if the run has no such id.
        next(_show_id(run, id), None)
        yield _join_line(f"{id}: no model was asked here, so there are no prompts")


def _find_addresses(run: RunFolder, journal: JournalReader, id: str) -> list[str]:
    # An id that is already an address is returned unchanged.
    if journal.entry_at(base_of(id), expand_texts=False) is not None:
        return [id]
    empty_table = pl.LazyFrame(schema={"address": pl.String, "speaker_id": pl.String})
    answers = run.scan_table("answers") if run.has_table("answers") else empty_table
    if room := _find_room(run, id):
        addresses, scope_parts = spoken_at(run, room), [*room.key]
    else:
        *scope_parts, speaker = [unescape_address_part(part) for part in id.split("/")]
        answers = answers.filter(pl.col("speaker_id") == speaker)
        # One model call may hold utterances of several participants.
        addresses = {
            address for address in spoken_by(run, speaker) if is_within(address, scope_parts)
        }
    addresses.update(
        address
        for address in answers.select("address").collect()["address"]
        if is_within(address, scope_parts)
    )
    entries = {
        address: entry
        for address in addresses
        if (entry := journal.entry_at(address, expand_texts=False)) is not None
    }
    return sorted(entries, key=lambda address: (entries[address].started_at, address))


def _render_call(call: CallView) -> Iterator[Text]:
    speaker = call.asked.speaker if call.asked else ""
    place = place_of(call.address, [speaker])
    title = " · ".join(filter(None, (place, speaker)))
    for entry, prompt in call.tries:
        yield _join_line((f"\n{title}", "bold"), f"  {entry.address}")
        if prompt.legend is None:
            yield _join_line(("This run did not record the sources of this prompt.", "dim"))
        else:
            yield from _render_legend(prompt, prompt.legend)
        for role, pieces in prompt.messages:
            yield _join_line((f"{role}:", "underline"))
            yield _tag_pieces(pieces, prompt.legend)
        reply = entry.reply or f"(no answer: {entry.finish})"
        yield _join_line(("reply:", "underline"))
        yield _join_line((reply, "bold"))
    # The prompt above is the one that a model would get.
    for part, text in call.wordings:
        yield _join_line((f"{part}, as the human read it:", "underline"))
        yield _join_line((text, ""))


def _render_legend(prompt: Sourced, legend: Legend) -> Iterator[Text]:
    ids: dict[str, dict[str, None]] = {label.key: {} for label in legend.labels.values()}
    for _, pieces in prompt.messages:
        for span in (span for piece in pieces for span in piece.opened):
            changed = " (changed)" if span.source.altered else ""
            ids[legend.label(span.source).key][f"{span.source.id}{changed}"] = None
    for label in legend.labels.values():
        label_ids = [source_id for source_id in ids[label.key] if source_id]
        more_text = f", … {len(label_ids) - MAX_IDS} more" if len(label_ids) > MAX_IDS else ""
        ids_text = f": {', '.join(label_ids[:MAX_IDS])}{more_text}" if label_ids else ""
        yield _join_line(
            (f"  [{label.key}] {label.name}", _terminal_style(label.style)), (ids_text, "dim")
        )
    yield _join_line(("  without a key: instructions of the study", "dim"))


def _tag_pieces(pieces: Iterable[Piece], legend: Legend | None) -> Text:
    # A tag holds the key of the source, as in `[P]…[/P]`.
    text = Text()
    for piece in pieces:
        labels = {span: legend.label(span.source) for span in piece.spans} if legend else {}
        for span in piece.opened if labels else ():
            text.append(f"[{labels[span].key}]", f"dim {_terminal_style(labels[span].style)}")
        text.append(
            without_hidden(piece.text),
            _terminal_style(labels[piece.spans[-1]].style) if labels else "",
        )
        for span in reversed(piece.closed) if labels else ():
            text.append(f"[/{labels[span].key}]", f"dim {_terminal_style(labels[span].style)}")
    return text


def _terminal_style(style: str) -> str:
    if style.startswith("speech c"):
        return SPEAKER_STYLES[int(style.removeprefix("speech c")) % len(SPEAKER_STYLES)]
    return KIND_STYLES.get(style, "")


# --- lines ---------------------------------------------------------------------------------------


def _join_line(*parts: str | tuple[str, str]) -> Text:
    cleaned = (
        (without_hidden(part), "") if isinstance(part, str) else (without_hidden(part[0]), part[1])
        for part in parts
    )
    return Text.assemble(*cleaned)


def _sentence_case(name: str) -> str:
    # Ids in the name keep their case.
    return capitalise(column_heading(name))


def _render_title(words: str) -> Iterator[Text]:
    yield Text()
    yield Text(without_hidden(words), "underline")


def _open_journal(run: RunFolder) -> JournalReader:
    path = run.path / JOURNAL
    if not path.exists():
        raise StorageError(f"{run.path}: there is no {JOURNAL}; this run has made no calls yet")
    return JournalReader(path)
