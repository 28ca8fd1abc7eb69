"""One discussion held from Python, without a study file: the engine plays it in a folder that goes.

`DiscussionSimulator.run()` comes here when it is given no scope.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from folkmoot.engine.runner import run
from folkmoot.engine.session import Session
from folkmoot.engine.study import Study
from folkmoot.errors import InputError
from folkmoot.models.scripted import Scripted
from folkmoot.studies.focus_group.config import DiscussionConfig, check
from folkmoot.studies.focus_group.discussion import DiscussionTranscript
from folkmoot.studies.focus_group.llm_client import LLMClient, ask

Discuss = Callable[[Session], Awaitable[DiscussionTranscript]]


async def played(
    config: DiscussionConfig, client: LLMClient, discuss: Discuss
) -> DiscussionTranscript:
    """What `discuss` brings in a session of its own, all calls answered by the client.

    Raises InputError for settings that do not fit together, and for more than one group or
    concept, and whatever the client raises.
    """
    if config.replications > 1 or config.stimuli:
        raise InputError("one simulator holds one discussion: run the study for several")
    kept: list[DiscussionTranscript] = []

    async def protocol(session: Session) -> None:
        kept.append(await discuss(session))

    study = Study(
        name="focus_group",
        title="Focus group",
        config=DiscussionConfig,
        protocol=protocol,
        prompts=Path(__file__).parent / "prompts",
        check=check,
    )
    settings = config.model_dump(mode="json", exclude_unset=True)
    provider = Scripted(lambda request, address: ask(client, request))

    def play() -> None:
        with tempfile.TemporaryDirectory() as folder:
            run(study, settings, out=Path(folder) / "run", provider=provider)

    await asyncio.to_thread(play)
    return kept[0]
