"""What every study type needs and none should invent: so far, how findings are made and worded."""
