"""Check whether a study can run on a cluster, before the run calls a model."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules

from folkmoot.engine.settings.config import StudyConfig
from folkmoot.errors import InputError
from folkmoot.hints import lacks_extra
from folkmoot.models.catalog import LOCAL_MODEL, resolve_model

RAY_EXECUTOR = "ray"


def require_cluster_support(
    executor: str,
    config: StudyConfig,
    models: list[str],
    *,
    key: str | None,
    has_custom_provider: bool,
) -> None:
    """Raise InputError if a run with the settings `config` cannot use `executor`.

    - `models`: the models that the run calls.
    - `key`: the API key that was given as an option, or None.
    - `has_custom_provider`: True if a provider that was given in Python answers the calls.
    """
    if executor != RAY_EXECUTOR and not executor.startswith("ray://"):
        raise InputError(f"--executor {executor}: write ray (this machine) or ray://HOST:10001")
    if find_spec("ray") is None:
        raise InputError(lacks_extra(f"--executor {executor}", "ray", "Ray"))
    # Check before Ray is imported, since a module in this folder may also hide one that Ray
    # imports.
    if hidden_modules := hidden_by_folder(Path.cwd()):
        raise InputError(
            f"--executor {executor}: Ray's workers import modules from the current folder "
            f"first, and {', '.join(hidden_modules)} in it would replace the installed module "
            "of that name; start from another folder"
        )
    if config.batch:
        raise InputError(
            f"--executor {executor}: a single process submits batches and waits for them; leave "
            "out --executor, or --batch (`batch:`)"
        )
    if config.seats is not None:
        raise InputError(
            f"--executor {executor}: humans take part in this study, and a single process "
            "serves their pages; leave out --executor, or `seats:` (--seat)"
        )
    if key:
        raise InputError(
            f"--executor {executor}: --key is not sent to other machines; put the key into the "
            "environment of each machine, or into a .env file in the folder where Ray was "
            "started there"
        )
    if has_custom_provider:
        raise InputError(
            f"--executor {executor}: provider=… answers in this process; name a model instead"
        )
    local_models = [
        model for model in models if resolve_model(model, config.endpoints).provider == LOCAL_MODEL
    ]
    if local_models:
        raise InputError(
            f"--executor {executor}: each process would start its own {local_models[0]}; start "
            "one server per machine, and list the servers under `endpoints:`"
        )
    try:
        import_module("ray")
    # The compiled parts of Ray may raise anything.
    except Exception as error:
        raise InputError(
            f"--executor {executor}: Ray is installed, but cannot be loaded: {error}"
        ) from error


def hidden_by_folder(folder: Path) -> list[str]:
    """Return the names of modules in a folder that hide installed modules of the same names."""
    other_paths = [entry for entry in sys.path if Path(entry).resolve() != folder.resolve()]
    names = sorted(module.name for module in iter_modules([str(folder)]))
    standard = {*sys.stdlib_module_names, *sys.builtin_module_names}
    return [
        name
        for name in names
        if name in standard or PathFinder.find_spec(name, other_paths) is not None
    ]
