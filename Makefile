# Everything runs in .venv, which the first verb makes and a change of pyproject.toml or constraints.txt renews.

PY    := .venv/bin/python
READY := .venv/.ready

.PHONY: help setup check test test-slow test-spark test-matrix coverage docs demo bench bench-spark bench-upkeep bench-peers bench-guard crash

help:  ## List the verbs
	@awk -F ' *## ' '/^[a-z-]+:.*## / { sub(/:.*/, "", $$1); printf "  make %-12s %s\n", $$1, $$2 }' Makefile

setup: $(READY)  ## Make .venv with all that developing needs (PYTHON=… chooses the interpreter)

$(READY): pyproject.toml constraints.txt scripts/make-venv
	@scripts/make-venv .venv
	@touch $@

check: $(READY)  ## Lint, format, refused words, types, import rules
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) scripts/check_words.py
	$(PY) -m mypy src
	$(PY) -m mypy --config-file scripts/mypy-tools.ini --cache-dir .mypy_cache/tools tests bench scripts demo examples
	.venv/bin/lint-imports --no-cache

test: $(READY)  ## Run the tests (TAILRACE_REQUIRE=java,kafka fails where those are missing instead of skipping)
	$(PY) -m pytest -n 2 --dist worksteal

test-slow: $(READY)  ## Run those that take longer: kills in a loop, frameworks, a thousand connections, the demo
	$(PY) -m pytest -m "slow and not crash and not spark" -n 2 --dist worksteal

test-spark: $(READY)  ## Run the tests that start Spark, which needs Java
	$(PY) -m pytest -m "spark and not crash" -n 2 --dist worksteal

coverage: $(READY)  ## Run the tests of `make test`, and measure what they cover (build/coverage/index.html)
	$(PY) -m pytest -n 2 --dist worksteal --cov --cov-report=term:skip-covered --cov-report=html

docs: $(READY)  ## Build the documentation site in build/site, and fail on a broken link
	NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict

demo: $(READY)  ## Show what tailrace does
	$(PY) -m demo

bench: $(READY)  ## Measure
	$(PY) -m bench

bench-spark: $(READY)  ## Measure reading and writing with Spark, against its own Kafka connector
	scripts/fetch-spark-connector
	$(PY) -m bench --spark

bench-peers: $(READY)  ## Measure side by side with Kafka, NATS, Redis and RabbitMQ, in half an hour (FULL=1: all)
	scripts/fetch-kafka
	scripts/fetch-peers
	$(PY) -m bench.peers

bench-guard: $(READY)  ## Fail where a hot path became slower than its limit allows (BASE=rev)
	$(PY) -m bench.guard

bench-upkeep: $(READY)  ## Measure with much history, 30 GB of it, and beside a compaction
	$(PY) -m bench --upkeep

test-matrix: $(READY)  ## Run the tests of Spark and of the client on PySpark 4.2 and 4.3, on our broker and on Apache Kafka
	scripts/test-matrix

crash: $(READY)  ## Long runs with faults injected (ROUNDS=… kills, CUTS=… power cuts)
	$(PY) -m pytest -m crash --timeout 0 -n 2
