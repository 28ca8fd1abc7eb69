"""What stands in the example workbook and in the notes of the template: words, no logic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from folkmoot.studies.workbook.model import Scalar

NOTES: Mapping[str, str] = {
    "settings.experiment_id": "Names the run folder and the files: <experiment_id>.json and .csv.",
    "settings.model_info": "The model that answers, e.g. gpt-4o-mini. With hf-inference fill in "
    "api_endpoint as well. --model synthetic on the command line needs no key.",
    "settings.api_endpoint": "Only for hf-inference: the URL of the endpoint.",
    "settings.temperature": "A number from 0 to 2.",
    "settings.num_agents_per_session": "Participants in each session, special roles not counted.",
    "settings.num_sessions": "How many sessions are played.",
    "settings.max_conversation_length": "Most messages of a session that a model writes. A session "
    "that reaches it ends there.",
    "settings.treatment_assignment_strategy": "simple_random: each session draws by itself. "
    "complete_random: as even as can be. manual: by a column of agent_profiles.",
    "settings.treatment_column": "Only for manual: name of the column (row 1 or row 2).",
    "settings.session_assignment_strategy": "random, or manual by a column of agent_profiles. "
    "Who is blank there takes no part.",
    "settings.session_column": "Only for manual: name of the column (row 1 or row 2).",
    "settings.role_assignment_strategy": "random, or manual by a column of agent_profiles.",
    "settings.role_column": "Only for manual: name of the column (row 1 or row 2).",
    "settings.random_seed": "The same seed draws the same. Blank: 42.",
    "treatments.treatment_label": "A short label; must be unique.",
    "treatments.treatment_description": "Shown to all participants of the session, as part of what "
    "they are told at the beginning.",
    "roles.role_label": "Facilitator must be there: it poses the questions. Summarizer may be "
    "there. All others are roles of participants.",
    "roles.role_description": "What the role is told about itself.",
    "tasks.task_id": "Must be unique.",
    "tasks.type": "context: told before everything, must come first. discussion: one after the "
    "other, all hear. public_question: one after the other, answers so far are shown. "
    "private_question: answers are hidden until the round ends.",
    "tasks.task_order": "Tasks with the same number are shuffled, anew in each session.",
    "tasks.is_adapted": "1 if the original wording was changed. For the record only.",
    "tasks.human_text": "The original wording. For the record only.",
    "tasks.llm_text": 'What is asked. Plain text for all, or {"Role 1": "…", "Role 2": "…"}: the '
    "order of the dict is the order of speaking, and who is not in it sits out. {{ name }} puts a "
    "constant or an earlier result in, {response_options} the options.",
    "tasks.var_name": "Column of the answer in the CSV file; must be unique.",
    "tasks.var_type": "category, integer or float. Blank: text.",
    "tasks.response_options": 'A text, a list ["yes", "no"], a range (0, 10) with both ends '
    'included, or a dict of these by role {"Role 1": (0, 10)}.',
    "tasks.randomize_response_order": "1: each participant sees the list in an order of its own.",
    "tasks.validate_response": "1: an answer that does not fit is asked for again, up to 5 times.",
    "tasks.generate_speculation_score": "1: asks how speculative the answer is, 0 to 100.",
    "tasks.format_response": "1: the answer is asked for as JSON.",
    "profiles.ID": "Row 1: short names. Row 2: the questions as asked. From row 3 on: one person a "
    "row. The column ID must be there, its values must be unique; it is never shown.",
    "constants.name": "A placeholder: {{ name }} in the other sheets becomes its value.",
    "constants.value": 'A list: ["participant", "subject"]. Each combination of values is an '
    "experiment of its own.",
    "computed.name": "{{ name }} shows the result in later tasks; a column of the CSV file.",
    "computed.scope": "participant: one value each. session: one value for all.",
    "computed.expression": "Arithmetic over variables and constants. give is one's own value; "
    "sum(give), mean(give), min(give), max(give), count(give > 5) go over the session, "
    "sum(others(give)) over the others.",
}

_CONTEXT = (
    "You take part in an economic game with {{ members - 1 }} other people. You play "
    "three rounds with the same group. In each round everybody gets {{ endowment }} tokens and "
    "decides alone how many of them to put into a common pot. The pot is multiplied by "
    "{{ multiplier }} and shared equally among all {{ members }} members, whatever each one gave. "
    "What you do not give you keep. Your earnings of a round are what you kept plus your share of "
    "the pot. After each round everybody learns what the others gave."
)
_CHECK = (
    "Before we begin, one question to see that the rules are clear. Everybody puts all "
    "{{ endowment }} tokens into the pot. Does each member then end the round with more tokens "
    "than if nobody gave anything?\n\n{response_options}"
)
_TALK = (
    "You may now talk with the others before the first round. What should the group do, and why? "
    "Speak in two or three sentences."
)
_GIVE = "How many of your {{ endowment }} tokens do you put into the pot?\n\n{response_options}"


def _again(last: int) -> str:
    return (
        f"Round {last} is over. Together the group put {{{{ total_{last} }}}} tokens into the pot. "
        f"You put in {{{{ give_{last} }}}} and earned {{{{ payoff_{last} | round(1) }}}} tokens."
        f"\n\nRound {last + 1}: {_GIVE[0].lower()}{_GIVE[1:]}"
    )


_CLOSE = (
    "The game is over; you earned {{ earnings | round(1) }} tokens in all. How satisfied are you "
    "with what the group did?\n\n{response_options}"
)
_FAIR = (
    "The game is over. On a scale from 0 (not at all) to 100 (entirely), how fair was the outcome "
    "to you?\n\n{response_options}"
)
_SATISFIED = '["very satisfied", "rather satisfied", "rather dissatisfied", "very dissatisfied"]'
_YES_NO = '["yes", "no"]'
_FIRST = f"Round 1: {_GIVE}"
_RANGE = "(0, {{ endowment }})"

_PEOPLE: Sequence[Sequence[Scalar]] = (
    ("1.1", 34, "nurse", "a city", 4, "I look after my parents and count every euro."),
    ("1.2", 61, "retired engineer", "a village", 3, "I like plans that can be checked."),
    ("1.3", 22, "student of law", "a city", 5, "Rules are there so that people can trust."),
    ("1.4", 45, "baker with a shop of her own", "a small town", 2, "Nobody ever gave me a thing."),
    ("1.5", 38, "primary school teacher", "a suburb", 5, "Children learn sharing by seeing it."),
    ("1.6", 53, "truck driver", "a small town", 2, "I keep what I earn and I work for it."),
    ("1.7", 29, "software developer", "a city", 3, "I think in expected values."),
    ("1.8", 70, "widow and volunteer", "a village", 5, "A community lives from those who give."),
    ("1.9", 41, "police officer", "a suburb", 3, "Most people are decent when watched."),
    ("1.10", 26, "waiter and musician", "a city", 4, "Money comes and goes, friends stay."),
    ("1.11", 57, "farmer", "a village", 3, "You reap what the neighbours sow with you."),
    ("1.12", 48, "accountant", "a suburb", 2, "Numbers first, feelings later."),
    ("1.13", 33, "social worker", "a city", 5, "People without a cushion need the others."),
    ("1.14", 65, "former mayor", "a small town", 4, "I have seen good projects fail for a little."),
    ("1.15", 19, "apprentice electrician", "a small town", 3, "I do what the group agrees on."),
    ("1.16", 50, "owner of a small firm", "a suburb", 2, "Risk should pay for who takes it."),
)


def _task(
    task_id: int,
    kind: str,
    order: int,
    text: str,
    name: str,
    var_type: str | None = None,
    options: str | None = None,
    flags: tuple[int, int, int, int] = (0, 0, 0, 0),
) -> tuple[Scalar | None, ...]:
    """A row of the prompts sheet; flags: shuffle options, validate, speculation score, JSON."""
    return (task_id, kind, order, 0, None, text, name, var_type, options, *flags)


EXAMPLE: Mapping[str, Sequence[Sequence[Scalar | None]]] = {
    "settings": (
        ("experiment_id", "public_goods"),
        ("model_info", "gpt-4o-mini"),
        ("api_endpoint", None),
        ("temperature", 1),
        ("num_agents_per_session", 4),
        ("num_sessions", 4),
        ("max_conversation_length", 60),
        ("treatment_assignment_strategy", "complete_random"),
        ("treatment_column", None),
        ("session_assignment_strategy", "random"),
        ("session_column", None),
        ("role_assignment_strategy", "random"),
        ("role_column", None),
        ("random_seed", 42),
    ),
    "treatments": (
        ("plain", "The tokens are paid out in money after the game."),
        (
            "appeal",
            "The tokens are paid out in money after the game. Groups before you did best when "
            "everybody gave, and worst when each waited for the others.",
        ),
    ),
    "roles": (
        ("Facilitator", "You lead the session and pose the questions."),
        (
            "Summarizer",
            "You keep the minutes. You report what was said in neutral words and take no side.",
        ),
        (
            "Member",
            "You are a member of the group. You decide for yourself and need not agree with "
            "anybody.",
        ),
    ),
    "tasks": (
        _task(0, "context", 0, _CONTEXT, "context"),
        _task(
            1,
            "private_question",
            1,
            _CHECK,
            "understood",
            "category",
            '["yes", "no"]',
            (1, 1, 0, 0),
        ),
        _task(2, "discussion", 2, _TALK, "talk"),
        _task(
            3,
            "discussion",
            3,
            '{"Summarizer": "Sum up in one sentence what the group wants to do.",\n'
            ' "Member": "Is there anything that you want to add before we play?",}',
            "last_words",
        ),
        _task(
            4, "private_question", 4, f"Round 1: {_GIVE}", "give_1", "integer", _RANGE, (0, 1, 0, 0)
        ),
        _task(5, "private_question", 5, _again(1), "give_2", "integer", _RANGE, (0, 1, 0, 0)),
        _task(6, "private_question", 6, _again(2), "give_3", "integer", _RANGE, (0, 1, 0, 1)),
        _task(7, "public_question", 7, _CLOSE, "satisfied", "category", _SATISFIED, (1, 1, 1, 1)),
        _task(8, "private_question", 7, _FAIR, "fair", "float", "(0, 100)", (0, 1, 0, 0)),
    ),
    "profiles": (
        ("ID", "age", "work", "home", "sharing", "motto"),
        (
            "ID",
            "How old are you?",
            "What is your work?",
            "Where do you live?",
            "How much do you like to share, from 1 (not at all) to 5 (very much)?",
            "What would you say about yourself?",
        ),
        *_PEOPLE,
    ),
    "constants": (("endowment", "[10]"), ("multiplier", "[2]"), ("members", "[4]")),
    "computed": (
        *(
            row
            for n in (1, 2, 3)
            for row in (
                (f"total_{n}", "session", f"sum(give_{n})"),
                (
                    f"payoff_{n}",
                    "participant",
                    f"endowment - give_{n} + multiplier * total_{n} / members",
                ),
            )
        ),
        ("earnings", "participant", "payoff_1 + payoff_2 + payoff_3"),
        ("group_earnings", "session", "sum(earnings)"),
        ("share_given", "participant", "(give_1 + give_2 + give_3) / (3 * endowment)"),
    ),
}
