"""Before a run: a smaller version of it, a study file to begin with."""

from __future__ import annotations

from folkmoot.studies.focus_group.config import DiscussionConfig


def cut(config: DiscussionConfig, groups: int) -> DiscussionConfig:
    """The same study with at most so many groups."""
    return config.model_copy(update={"replications": min(config.replications, max(1, groups))})


def notes(config: DiscussionConfig) -> list[str]:
    """What a user should know before a run."""
    said = []
    if config.max_responses_per_question > config.num_personas:
        said.append(
            f"at most {config.num_personas} answers to a question: there are no more people"
        )
    return said


def template() -> dict[str, str | bytes]:
    """`folkmoot new focus_group`."""
    return {"focus_group.yaml": TEMPLATE}


TEMPLATE = """# A focus group on one product concept. Run it with:  folkmoot run focus_group.yaml
study: focus_group

product_concept: A countertop oven that scans the barcode of a ready meal and cooks it by itself
category: kitchen appliances
stimulus_material: |
  Meet the oven that reads. Hold the package to the window, close the door, and dinner is ready in
  twelve minutes, crisp on the outside, hot in the middle. 299 dollars.

num_personas: 8
phases: [warmup, exploration, deep_dive, reaction, synthesis]
questions_per_phase: 2
max_responses_per_question: 5
temperature: 0.9
# model: anthropic/claude-sonnet-4-20250514

# replications: 20            # independent groups, each with its own recruits
# quotas:                     # shares or numbers of people
#   sex: {F: 1, M: 1}
#   age: {18-34: 3, 35-64: 4, 65+: 1}
# personas: my_profiles.csv   # real profiles instead of drawn ones
# stimuli:                    # a concept test: the same people on two concepts
#   - {name: oven, product_concept: "…"}
#   - {name: box, product_concept: "…"}
"""
