"""Study types, study files and the code that they name.

Start with `study` (what a study type is and how it is found), then `study_file` (read whole, each
mistake named). `study_code` runs a user's Python exactly as it was read and agreed to; `consent`
asks before it does. `strict_answers` computes findings without clarified answers.

Imports session and the folders above it; cluster and run may import it.
"""
