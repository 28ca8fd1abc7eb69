"""What cannot run on a cluster, said before anything is asked."""

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
from folkmoot.models.catalog import ON_THIS_MACHINE, resolve

RAY = "ray"


def refuse(
    where: str, config: StudyConfig, models: list[str], *, key: str | None, scripted: bool
) -> None:
    """Raise InputError where `--executor` cannot be kept. `scripted`: the caller's own provider
    would answer."""
    if where != RAY and not where.startswith("ray://"):
        raise InputError(f"--executor {where}: write ray (this machine) or ray://HOST:10001")
    if find_spec("ray") is None:
        raise InputError(lacks_extra(f"--executor {where}", "ray", "Ray"))
    if hidden := hidden_by_folder(Path.cwd()):
        raise InputError(
            f"--executor {where}: Ray's workers look for modules in the current folder first, and "
            f"it holds {', '.join(hidden)}, which would run in place of the installed module of "
            "that name; start from another folder"
        )
    if config.batch:
        raise InputError(
            f"--executor {where}: batches are handed in by one process, which waits for them; "
            "leave out --executor, or --batch (`batch:`)"
        )
    if config.seats is not None:
        raise InputError(
            f"--executor {where}: people have seats in this study, and their pages are served by "
            "one process; leave out --executor, or `seats:` (--seat)"
        )
    if key:
        raise InputError(
            f"--executor {where}: --key is not sent to other machines; put the key into the "
            "environment of each machine, or into a .env in the folder where its Ray was started"
        )
    if scripted:
        raise InputError(
            f"--executor {where}: provider=… answers in this process; name a model instead"
        )
    own = [m for m in models if resolve(m, config.endpoints).provider == ON_THIS_MACHINE]
    if own:
        raise InputError(
            f"--executor {where}: each process would start {own[0]} for itself; start "
            "one server per machine, and list them under `endpoints:`"
        )
    try:
        import_module("ray")
    except Exception as error:  # whatever its compiled parts raise
        raise InputError(
            f"--executor {where}: Ray is installed, but cannot be loaded: {error}"
        ) from error


def hidden_by_folder(folder: Path) -> list[str]:
    """Return the modules of a folder that have the name of an installed one."""
    elsewhere = [entry for entry in sys.path if Path(entry).resolve() != folder.resolve()]
    names = sorted(module.name for module in iter_modules([str(folder)]))
    standard = {*sys.stdlib_module_names, *sys.builtin_module_names}
    return [n for n in names if n in standard or PathFinder.find_spec(n, elsewhere) is not None]
