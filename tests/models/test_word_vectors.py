"""Word vectors: one vector per text, independent of installed packages."""

from __future__ import annotations

import asyncio
import csv
import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file
from sklearn.metrics import adjusted_mutual_info_score
from wordllama.config import Config
from wordllama.inference import WordLlamaInference

from folkmoot.errors import FatalModelError, InputError
from folkmoot.measures.clusters import labels_at
from folkmoot.models.local import hashed_embeddings, word_vectors
from folkmoot.models.local.word_vectors import DIMENSIONS, WordVectors
from folkmoot.models.request import FloatArray, Message, ModelRequest

MODEL = WordVectors()
# Four topics without shared words.
SENTENCES = {
    "traffic": (
        "Cars race past the school gate every morning.",
        "We need a zebra crossing and a lower speed limit.",
        "Cyclists are knocked down at that junction.",
        "Lorries should be kept out of residential roads.",
    ),
    "housing": (
        "Rents have doubled and young families move away.",
        "Landlords evict tenants to sell their flats.",
        "The council must build affordable homes.",
        "Nobody on an ordinary wage gets a mortgage here.",
    ),
    "health": (
        "It takes three weeks to see a doctor.",
        "The hospital has too few nurses at night.",
        "Patients wait for surgery in pain.",
        "Our clinic should offer vaccinations without an appointment.",
    ),
    "farming": (
        "Drought ruined the wheat harvest again.",
        "Pesticides kill the bees in the orchards.",
        "Milk prices do not cover what the cows eat.",
        "Farmers want water for their fields in summer.",
    ),
}


def find_package_files() -> tuple[Path, Path]:
    names = word_vectors.VECTOR_FILE[0], word_vectors.TOKEN_FILE[0]
    vectors, tokens = map(word_vectors.find_package_file, names)
    return vectors, tokens


def embed(texts: Sequence[str]) -> FloatArray:
    return asyncio.run(MODEL.embed_texts("wordllama", texts, address="a"))[0]


def test_rows_are_unit_vectors_and_the_tokens_are_counted() -> None:
    rows, usage = asyncio.run(
        MODEL.embed_texts("wordllama", ["Night bus", "", "Cars race past"], address="a")
    )
    assert rows.shape == (3, DIMENSIONS) and rows.dtype == np.float32
    assert np.allclose(np.linalg.norm(rows, axis=1), [1, 0, 1], atol=1e-6)
    assert (usage.input_tokens or 0) >= 5 and usage.output_tokens == 0


@given(st.lists(st.text(max_size=80), min_size=1, max_size=5), st.integers(0, 4))
@settings(max_examples=60, deadline=None)
def test_vector_does_not_depend_on_the_batch(texts: list[str], at: int) -> None:
    at %= len(texts)
    assert np.array_equal(embed(texts)[at], embed([texts[at]])[0])


def test_vectors_equal_those_of_the_original_code() -> None:
    vectors, tokenizer = word_vectors.load_vectors(*find_package_files())
    assert np.array_equal(vectors, load_file(find_package_files()[0])["embedding.weight"])
    reference_model = WordLlamaInference(vectors, Config.l2_supercat, tokenizer)
    texts = [text for sentences in SENTENCES.values() for text in sentences]
    assert np.allclose(embed(texts), reference_model.embed(texts, norm=True), atol=1e-5)


def test_topics_with_different_words_are_separated() -> None:
    texts = [text for sentences in SENTENCES.values() for text in sentences]
    topics = [topic for topic, sentences in SENTENCES.items() for _ in sentences]
    by_hash = compute_topic_agreement(hashed_embeddings.embed_texts, texts, topics)
    assert compute_topic_agreement(embed, texts, topics) > max(0.5, by_hash + 0.3)


def test_word_vector_model_answers_no_question() -> None:
    request = ModelRequest("wordllama", (Message("user", "Name one fruit."),))
    with pytest.raises(FatalModelError, match="cannot answer questions"):
        asyncio.run(MODEL.complete_request(request, address="a"))


def test_other_files_with_the_same_name_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, *_ in (word_vectors.VECTOR_FILE, word_vectors.TOKEN_FILE):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    monkeypatch.setattr(word_vectors, "find_package_file", tmp_path.joinpath)
    with pytest.raises(InputError, match="does not contain the word vectors") as refused:
        asyncio.run(WordVectors().embed_texts("wordllama", ["a"], address="a"))
    assert f"pip install {word_vectors.PACKAGE}" in str(refused.value)


def compute_topic_agreement(
    embed_function: Callable[[Sequence[str]], FloatArray],
    texts: Sequence[str],
    groups: Sequence[object],
) -> float:
    """Adjusted mutual information of as many Ward clusters as there are groups."""
    labels = labels_at(embed_function(texts).astype(float), len(set(groups)), "agglomerative")
    return float(adjusted_mutual_info_score(groups, labels))


# Real sentences that are not part of this project: see docs/decisions/0047.
DATA = Path(os.environ.get("FOLKMOOT_DATA", "nowhere"))
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="FOLKMOOT_DATA names no folder")


@needs_data
def test_topics_of_real_questions_are_found_better_than_with_hashes() -> None:
    questions = json.loads((DATA / "topics/questions_sample.json").read_text())
    topic_counts = Counter(question["topic"] for question in questions)
    frequent_questions = [
        question for question in questions if topic_counts[question["topic"]] >= 4
    ]
    texts, topics = (
        [question["question"] for question in frequent_questions],
        [question["topic"] for question in frequent_questions],
    )
    vectors, hashed = (
        compute_topic_agreement(embed_function, texts, topics)
        for embed_function in (embed, hashed_embeddings.embed_texts)
    )
    print(f"topics: word vectors {vectors:.2f}, hash {hashed:.2f}")
    assert vectors > 0.6 and vectors > hashed + 0.2


@needs_data
@pytest.mark.parametrize("name", ("15-per-hour-seattle", "scoop-hivemind.affordable-housing"))
def test_agreement_on_statements_is_not_visible_in_their_words(name: str) -> None:
    folder = DATA / "polis" / name
    with (folder / "comments.csv").open() as file:
        comments = {
            comment["comment-id"]: comment["comment-body"] for comment in csv.DictReader(file)
        }
    with (folder / "participants-votes.csv").open() as file:
        rows = list(csv.DictReader(file))
    votes = np.array([[float(row.get(comment) or "nan") for comment in comments] for row in rows])
    texts = list(comments.values())
    pairs = []
    for first_index, second_index in combinations(range(len(texts)), 2):
        is_rated_twice = ~np.isnan(votes[:, first_index]) & ~np.isnan(votes[:, second_index])
        first_votes, second_votes = (
            votes[is_rated_twice, first_index],
            votes[is_rated_twice, second_index],
        )
        if is_rated_twice.sum() >= 20 and first_votes.std() and second_votes.std():
            pairs.append(
                (first_index, second_index, abs(np.corrcoef(first_votes, second_votes)[0, 1]))
            )
    for embed_function in (embed, hashed_embeddings.embed_texts):
        similarity = embed_function(texts) @ embed_function(texts).T
        alike = np.corrcoef(
            [
                (similarity[first_index, second_index], agreed)
                for first_index, second_index, agreed in pairs
            ],
            rowvar=False,
        )
        print(f"{name}: {alike[0, 1]:.2f}")
        assert abs(alike[0, 1]) < 0.2


async def test_runs_of_a_process_share_one_copy() -> None:
    first, second = WordVectors(), WordVectors()
    vector, _ = await first.embed_texts("wordllama", ["a park"], address="a")
    loaded = word_vectors.load_vectors(*find_package_files())
    await first.close()
    second_vector, _ = await second.embed_texts("wordllama", ["a park"], address="a")
    assert (second_vector == vector).all()
    assert word_vectors.load_vectors(*find_package_files())[0] is loaded[0]
