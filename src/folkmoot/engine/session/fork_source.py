"""Open the run that a fork repeats.

A fork is a run that repeats an earlier run except for one changed reply.
"""

from __future__ import annotations

from pathlib import Path
from shutil import copyfile

from folkmoot.engine.journal.earlier_replies import EarlierReplies, ReplyChange
from folkmoot.engine.journal.journal import Journal
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.errors import ForeignJournalError
from folkmoot.files import storage_errors
from folkmoot.storage.run_folder import JOURNAL, PERSONAS


def open_earlier(folder: Path, change: ReplyChange, journal: Journal) -> EarlierReplies:
    """Open the journal of the run that a fork repeats.

    The personas that the earlier run drew are copied into the folder of the fork.

    Raises StorageError if the earlier run is gone. Raises ForeignJournalError if the journal there
    is not the one from which the fork was made.
    """
    source = folder / change.run
    earlier = JournalReader(source / JOURNAL)
    if earlier.content_digest() != change.journal_digest:
        earlier.close()
        raise ForeignJournalError(
            f"{source / JOURNAL}: is not the journal from which {folder} was forked; "
            "restore that run"
        )
    if (source / PERSONAS).exists() and not (folder / PERSONAS).exists():
        with storage_errors(folder):
            copyfile(source / PERSONAS, folder / PERSONAS)
    return EarlierReplies(earlier, change, is_changed=journal.row_number(change.address) > 0)
