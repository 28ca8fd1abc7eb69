"""Building blocks that study types share: findings, exposure, coding of free text, controls."""
