"""Local servers for the tests; none of them is part of the package."""
