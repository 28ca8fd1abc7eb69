"""Images in prompts: which texts reference one, their position, and the format of each vendor."""

from __future__ import annotations

import json
from typing import Any

import pytest

from folkmoot.models.catalog import is_text_only, resolve_model
from folkmoot.models.images import find_image_references, images_in_messages, split_messages
from folkmoot.models.request import Message, ModelRequest
from folkmoot.models.wire import anthropic_messages, gemini, openai_chat
from folkmoot.models.wire.capabilities import Capabilities

PLAN = "https://example.org/plan.png"
PARK = "https://example.org/park.jpg?size=large"
DATA = "data:image/png;base64,iVBORw0KGgo="


@pytest.mark.parametrize(
    ("text", "urls"),
    [
        (f"Look at {PLAN}.", [PLAN]),
        (f"Which is nicer, {PLAN}, or ({PARK})?", [PLAN, PARK]),
        (f"A: {PLAN}\nB: {PARK}\nA again: {PLAN}", [PLAN, PARK]),
        ("![the plan](https://example.org/view?id=7)", ["https://example.org/view?id=7"]),
        ("[IMAGE: https://example.org/view/7]", ["https://example.org/view/7"]),
        (f'<img src="{PLAN}">', [PLAN]),
        ("https://example.org/PLAN.PNG#top", ["https://example.org/PLAN.PNG#top"]),
        ("http://127.0.0.1:8000/a.b/c.webp", ["http://127.0.0.1:8000/a.b/c.webp"]),
        (f"Seen: {DATA} there", [DATA]),
        # A list without spaces, as in a cell of a sheet.
        (f"{PLAN},{PARK}", [PLAN, PARK]),
        (f"{PARK};{PLAN},{DATA},{PLAN}", [PARK, PLAN, DATA]),
        (f"https://example.org/report,{PLAN}", [PLAN]),
        ("https://example.org/w_9,h_9/a.png?x=1,2", ["https://example.org/w_9,h_9/a.png?x=1,2"]),
        ("https://example.org/plan.png.html", []),
        ("https://example.org/a.png/view", []),
        ("https://example.org/news/7 and example.org/a.png and plan.png", []),
        ("The file .png at https://example.org", []),
        ("[a link](https://example.org/view?id=7)", []),
    ],
)
def test_image_references_in_a_text_are_found(text: str, urls: list[str]) -> None:
    assert [image.url for image in find_image_references(text)] == urls


@pytest.mark.parametrize(
    "text",
    ["http://" * 15_000, "https://x,;" * 9_000, "![" * 50_000, "https://x/" + ".png" * 25_000],
)
def test_long_text_is_searched_quickly(text: str) -> None:
    """The search takes linear time. A quadratic search would take minutes."""
    assert len(find_image_references(text[:100_000])) <= 1


def build_image_request(*messages: Message, images: tuple[str, ...] = ()) -> ModelRequest:
    image_urls = images or tuple(
        reference.words
        for message in messages
        for reference in find_image_references(message.content)
    )
    return ModelRequest("m", messages, images=image_urls)


BOTH = build_image_request(
    Message("system", "You are Ann."),
    Message("user", f"First {PLAN} then\n![park]({PARK})"),
    Message("assistant", "I like the first."),
    Message("user", f"Why not ![park]({PARK})? Answer."),
)


def test_openai_gets_image_url_parts() -> None:
    messages = openai_chat.encode_request(BOTH)["messages"]
    assert messages == [
        {"role": "system", "content": "You are Ann."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "First [image 1]"},
                {"type": "image_url", "image_url": {"url": PLAN}},
                {"type": "text", "text": " then\n[image 2]"},
                {"type": "image_url", "image_url": {"url": PARK}},
            ],
        },
        {"role": "assistant", "content": "I like the first."},
        {"role": "user", "content": "Why not [image 2]? Answer."},
    ]


def test_anthropic_gets_url_sources() -> None:
    body = anthropic_messages.encode_request(BOTH, Capabilities(accepts_cache_control=False))
    assert body["system"] == "You are Ann."
    assert body["messages"][0]["content"] == [
        {"type": "text", "text": "First [image 1]"},
        {"type": "image", "source": {"type": "url", "url": PLAN}},
        {"type": "text", "text": " then\n[image 2]"},
        {"type": "image", "source": {"type": "url", "url": PARK}},
    ]
    assert body["messages"][2]["content"] == [
        {"type": "text", "text": "Why not [image 2]? Answer."}
    ]


def test_gemini_gets_file_data_with_the_type_from_the_address() -> None:
    body = gemini.encode_request(
        build_image_request(Message("user", f"{PARK} ![](https://example.org/7) Which?"))
    )
    assert body["contents"][0]["parts"] == [
        {"text": "[image 1]"},
        {"fileData": {"fileUri": PARK, "mimeType": "image/jpeg"}},
        {"text": " [image 2]"},
        {"fileData": {"fileUri": "https://example.org/7"}},
        {"text": " Which?"},
    ]


def test_data_url_image_is_sent_as_bytes() -> None:
    request = build_image_request(Message("user", f"See {DATA}"))
    image = openai_chat.encode_request(request)["messages"][0]["content"][1]
    assert image == {"type": "image_url", "image_url": {"url": DATA}}
    image = anthropic_messages.encode_request(request)["messages"][0]["content"][1]
    assert image["source"] == {
        "type": "base64",
        "media_type": "image/png",
        "data": "iVBORw0KGgo=",
    }
    content_part = gemini.encode_request(request)["contents"][0]["parts"][1]
    assert content_part == {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}


IN_SYSTEM = build_image_request(
    Message("system", f"You see {PLAN}."), Message("user", "What do you say?")
)


@pytest.mark.parametrize("wire", [openai_chat, anthropic_messages, gemini])
def test_system_message_image_is_moved_to_the_first_question(wire: Any) -> None:
    """No vendor accepts an image in the system message."""
    body = wire.encode_request(IN_SYSTEM)
    messages = body.get("messages") or body["contents"]
    first_message = next(message for message in messages if message["role"] == "user")
    parts = first_message.get("content") or first_message["parts"]
    assert parts[0].get("text") == "[image 1]"
    assert PLAN in json.dumps(parts[1])
    assert parts[2]["text"] == "What do you say?"
    assert json.dumps(body).count(PLAN) == 1 and "You see [image 1]." in json.dumps(body)


@pytest.mark.parametrize("wire", [openai_chat, anthropic_messages, gemini])
@pytest.mark.parametrize("further", [(), (Message("assistant", "Thank you."),)])
def test_system_message_image_is_sent_without_a_user_message(
    wire: Any, further: tuple[Message, ...]
) -> None:
    """Otherwise the text would refer to an image that the model never gets."""
    body = wire.encode_request(build_image_request(Message("system", f"You see {PLAN}."), *further))
    messages = body.get("messages") or body["contents"]
    question = next(message for message in messages if message["role"] == "user")
    parts = question.get("content") or question["parts"]
    assert parts[0].get("text") == "[image 1]" and PLAN in json.dumps(parts[1])
    assert json.dumps(body).count(PLAN) == 1


@pytest.mark.parametrize("wire", [openai_chat, anthropic_messages])
def test_model_without_system_messages_gets_the_image(wire: Any) -> None:
    body = wire.encode_request(IN_SYSTEM, Capabilities(system=False))
    parts = body["messages"][0]["content"]
    assert parts[0]["text"] == "You see [image 1]" and PLAN in json.dumps(parts[1])


@pytest.mark.parametrize("wire", [openai_chat, anthropic_messages, gemini])
def test_addresses_that_are_no_image_references_stay_text(wire: Any) -> None:
    """A vendor never fetches an address that a participant wrote."""
    text = f"I found https://evil.example/x.png and {PLAN}"
    request = build_image_request(Message("user", f"{PLAN}\n{text}"), images=(PLAN,))
    body = json.dumps(wire.encode_request(request))
    assert "I found https://evil.example/x.png and [image 1]" in body
    assert body.count(PLAN) == 1


def test_only_images_in_the_messages_are_sent() -> None:
    messages = [Message("user", f"See {PLAN}"), Message("assistant", PARK)]
    assert images_in_messages({PLAN, PARK}, messages) == (PLAN,)
    assert split_messages(messages, ()) == [
        (message, [(message.content, None)]) for message in messages
    ]


def test_image_changes_the_fingerprint_and_text_alone_does_not() -> None:
    messages = (Message("user", f"See {PLAN}"),)
    assert (
        ModelRequest("m", messages).fingerprint()
        != ModelRequest("m", messages, images=(PLAN,)).fingerprint()
    )
    assert "images" not in ModelRequest("m", messages).to_json()


@pytest.mark.parametrize(
    ("model", "blind"),
    [
        *((name, True) for name in ("synthetic", "local", "gpt-3.5-turbo", "gpt-4", "kimi-k2")),
        *((name, True) for name in ("exaone-4.0", "o3-mini", "deepseek/deepseek-chat")),
        *((name, False) for name in ("gpt-4o", "gpt-4o-mini", "gpt-4-turbo", "gpt-4.1", "o3")),
        *((name, False) for name in ("claude-haiku-4.5", "gemini-3-flash", "moonshot/kimi-k2.5")),
        ("openai/a-model-of-mine", False),
    ],
)
def test_models_without_image_support_are_known(model: str, blind: bool) -> None:
    assert is_text_only(resolve_model(model)) is blind
