.DEFAULT_GOAL := help
.PHONY: help test slow lint format clean

help:  ## lists these commands
	@sed -nE 's/^([a-z]+):.*## (.*)/  make \1\t\2/p' Makefile | expand -t 16

test:  ## runs the tests, in about four minutes
	pytest

slow:  ## runs the long tests
	pytest -m slow

lint:  ## checks style and types
	ruff check .
	ruff format --check .
	mypy

format:  ## formats the code, and mends what ruff can mend
	ruff check --fix .
	ruff format .

clean:  ## removes caches and builds; logs/ and data/ stay
	rm -rf build dist site .mypy_cache .pytest_cache .ruff_cache src/*.egg-info
	find src tests -name __pycache__ -prune -exec rm -rf {} +
