"""How a discussion goes: the moderator, the talk at one table, what is said in private, and what is
read from it all."""
