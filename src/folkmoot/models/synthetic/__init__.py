"""The embedded respondent (`--model synthetic`): a documented opinion-dynamics model that speaks.

The default where no key is set: for demos, dry runs, cost and power estimates and tests. All that
it answers is marked SYNTHETIC and is no evidence about people. See docs/respondent.md.
"""

from __future__ import annotations

from folkmoot.models.request import Provider, ProviderSettings
from folkmoot.models.synthetic.draws import VERSION
from folkmoot.models.synthetic.knobs import PATHOLOGIES, Knobs, planted
from folkmoot.models.synthetic.mirror import true_effects
from folkmoot.models.synthetic.respondent import MODEL_SERVED, Respondent
from folkmoot.respondent import provider as rebuilt

__all__ = [
    "MODEL_SERVED",
    "PATHOLOGIES",
    "VERSION",
    "Knobs",
    "Respondent",
    "planted",
    "provider",
    "true_effects",
]


def provider(settings: ProviderSettings) -> Provider:
    """The embedded respondent with these settings. InputError on an unknown option."""
    if settings.study is not None:  # studies that have a part of their own in the new one
        return rebuilt(settings)
    return Respondent(settings)
