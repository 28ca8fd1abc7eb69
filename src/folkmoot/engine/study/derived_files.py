"""Write the files that a study type makes from its tables."""

from __future__ import annotations

from collections.abc import Callable

from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.settings.author_errors import locate_function, wrong_return_value
from folkmoot.engine.study.study import Study
from folkmoot.errors import ProtocolError
from folkmoot.storage.run_folder import RunFolder


def write_derived_files(
    study: Study, run: RunFolder, journal: JournalReader, write: Callable[[str, object], None]
) -> None:
    """Pass the name and the content of each file to `write`.

    Raises ProtocolError with the place of `Study.derived` for content that cannot be written.
    """
    for named_content in study.derived(run, journal):
        if len(named_content) != 2 or not isinstance(named_content[0], str):
            remedy = 'yield "counts.json", counts'
            raise wrong_return_value("derived", named_content, remedy, study.derived)
        name, content = named_content
        try:
            write(name, content)
        except TypeError as error:
            # No line of the study raises this error.
            raise ProtocolError(f"{name}: {error}", locate_function(study.derived)) from error
