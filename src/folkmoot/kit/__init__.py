"""What every study type needs and none should invent: findings, coding of free text, exposure."""
