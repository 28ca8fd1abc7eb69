"""The tables of a cross-pollination run: each column with its type and meaning."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from folkmoot.engine.seats import utterances
from folkmoot.engine.session.session import Scope
from folkmoot.storage.rows import Row, column
from folkmoot.studies.cross_pollination.config import CrossPollinationConfig
from folkmoot.studies.cross_pollination.participants import Cluster, Participant, State


class ParticipantRow(Row, table="participants", key=("participant_id",)):
    """One participant. Each demographic has a further column, such as `demographic_age`."""

    participant_id: str
    condition: str
    status: str = column("complete, failed (with a reason), skipped (with a reason) or pending")
    error_message: str | None = column("why the participant failed or was skipped")
    initial_choice: str | None = column("first vote (phase 1)")
    final_choice: str | None = column(
        "last vote (phase 6 or 7; for simple_voting the second vote, if asked)"
    )
    position_changed: bool | None = column("whether the final choice differs from the first")
    opposition_view: str | None = column(
        "option that the adversarial dialogue argued for (phase 5)"
    )
    cluster_id: str | None = column("cluster of reasons within the first choice (phase 4)")
    individual_summary: str | None = column("the interview in one to three sentences, by a model")
    summary_draw: int | None = column("draw of the summaries that this participant is shown")
    confidence_before: float | None = column(
        "confidence in the first vote, 0 to 100 (`confidence`)", between=(0, 100)
    )
    confidence_after: float | None = column(
        "confidence in the final vote, 0 to 100", between=(0, 100)
    )
    ranking_before: list[str] | None = column(
        "all options, best first, after the first vote (`ranking`)"
    )
    ranking_after: list[str] | None = column("all options, best first, after the final vote")
    restated_option: str | None = column(
        "option that the participant was asked to argue for in their own words (`restatement`)"
    )
    restatement: str | None = column("the participant's words for this option")
    delayed_choice: str | None = column(
        "third vote, with only the two earlier votes in the prompt (`delayed_vote`)"
    )
    missing_answers: dict[str, str] | None = column(
        "column of each question without an answer → reason: none_of_these, declined, cannot_say, "
        "or why the reply could not be parsed"
    )
    clarification_exchanges: int = column("number of questions with answers in the interview")
    adversarial_exchanges: int = column(
        "number of challenges with answers in the adversarial dialogue"
    )
    options_shown: list[str] = column("options in the order in which this participant saw them")
    base_persona: str = column("the raw line from which the persona was made")
    persona: str = column("the description that the model was given")
    persona_id: str = column("id of the persona; for a table of people, the id in that table")


DEMOGRAPHICS = {
    "demographic_age": "age in years",
    "demographic_sex": "F or M",
    "demographic_education": "highest education",
    "demographic_income": "income, from low to high",
    "demographic_location_type": "urban, suburban or rural",
    "demographic_political_leaning": "from very liberal to very conservative",
    "demographic_occupation": "occupation",
}


class ClusterRow(Row, table="clusters", key=("cluster_id",)):
    """One cluster of participants who gave similar reasons for the same option."""

    cluster_id: str = column("option and number of the cluster")
    option: str = column("option that its members chose first")
    description: str = column(
        "what the members have in common, in three sentences by a model; empty if it gave none"
    )
    member_count: int = column("participants in the cluster")
    member_ids: list[str] = column("ids of the members")


class FirstVoteRow(Row, table="first_votes", key=("option",)):
    """The number of first votes for one option in all conditions together."""

    option: str = column("an option of the topic")
    votes: int = column("first votes for it (phase 1)")
    share: int = column("percent of all first votes")


class SummaryRow(Row, table="summaries", key=("draw", "cluster_id")):
    """One version of a cluster's description, as the page of summaries shows it to participants.

    The rows follow the order of options in the study file. With `option_order: random`, the
    order differs between participants (`options_shown` in `participants`).
    """

    draw: int = column("draw of the summaries, from 1; see `summary_draws`")
    option: str = column("option under which the description is listed")
    cluster_id: str = column("cluster that is described")
    description: str = column("the description in three sentences, by a model")
    address: str = column("address of the reply that contains the description")


class UtteranceRow(utterances.UtteranceRow, table=utterances.UTTERANCES):
    """One turn of an interview or of an adversarial dialogue, or one private text.

    A private text (a restatement, the summary of an interview, or the description of a cluster) has
    no `turn`.
    """

    participant_id: str | None = column(
        "the participant who speaks, is spoken to or is summarised; empty for a cluster"
    )
    condition: str | None = column("condition of this participant")
    turn: int | None = column("number of the utterance in the dialogue, from 1")


TABLES = (ParticipantRow, ClusterRow, FirstVoteRow, SummaryRow, UtteranceRow)


def record_participant(rows: Scope, participant: Participant) -> Participant:
    """Record a participant in the table `participants`, unless this has been done already."""
    # `rows` is the scope of all participants' rows.
    if participant.is_recorded:
        return participant
    persona = participant.persona
    row = ParticipantRow.from_source(
        participant,
        missing_answers=dict(participant.missing_answers) or None,
        clarification_exchanges=len(participant.clarification_transcript or ()) // 2,
        adversarial_exchanges=len(participant.adversarial_transcript or ()) // 2,
        options_shown=list(participant.options),
        base_persona=persona.base,
        persona=persona.text,
        persona_id=persona.id,
    )
    # The sources of personas differ in the demographics that they have, so these columns are not
    # fields of `ParticipantRow`.
    demographics = {
        f"demographic_{key}": demographic for key, demographic in persona.demographics.items()
    }
    rows.at_row(participant.place_in_order).record(row.table, {**row.cells(), **demographics})
    return participant.with_changes(is_recorded=True)


def record_ended(rows: Scope, config: CrossPollinationConfig, state: State) -> State:
    """Record the participants who will give no final vote, such as participants who failed."""
    # They failed, were skipped, or are in conditions without a final vote.
    voting = {*config.conditions_with("summaries"), *config.conditions_with("dialogue")}
    voting |= {*config.uninformed_revote_conditions}
    return state.with_updates(
        record_participant(rows, participant)
        for participant in state.people.values()
        if not (participant.is_active and participant.condition in voting)
    )


def with_recording(
    rows: Scope,
    config: CrossPollinationConfig,
    vote: Callable[[Scope, Participant], Awaitable[Participant]],
) -> Callable[[Scope, Participant], Awaitable[Participant]]:
    """Return a function that runs `vote` and then records the participant who voted."""
    # A participant with a delayed vote is recorded only after that vote.

    async def vote_and_record(scope: Scope, participant: Participant) -> Participant:
        participant = await vote(scope, participant)
        is_asked_later = (
            config.delayed_vote and participant.is_active and participant.final_choice is not None
        )
        return participant if is_asked_later else record_participant(rows, participant)

    return vote_and_record


def cluster_row(cluster: Cluster) -> ClusterRow:
    """Return the row of a cluster in the table `clusters`."""
    return ClusterRow.from_source(
        cluster,
        cluster_id=cluster.id,
        member_count=len(cluster.member_ids),
        member_ids=list(cluster.member_ids),
    )
