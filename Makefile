# The commands of this repository. `make demo` and `make test` need nothing but this folder and a Rust toolchain:
# each first installs its tools, or names what is missing and how to get it.

.DEFAULT_GOAL := help
.PHONY: help demo test release install dist bench campaign dpdk ui docs site fmt lint fuzz generate

PREFIX ?= /usr/local

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## a private lab, traffic both ways for ten seconds, a live table and squall-report.html
	@scripts/setup rust
	cargo run --profile demo --package squall-cli --bin squall --no-default-features --features attacks -- demo

test: ## every check and test (what the CI runs)
	@scripts/test --setup

release: ## the daemon's page and the binary that is installed: target/dist/squall, and its symbols; PGO=1 by profile
	@scripts/setup rust node
	@scripts/ui
	@scripts/release $(if $(PGO),--pgo)

install: release ## the binary, its manual pages, completions and systemd unit: PREFIX (/usr/local), DESTDIR
	@scripts/install "$(PREFIX)" "$(DESTDIR)"

dist: ## the published files, in target/dist: static binary, deb, rpm, wheel, sdist, SBOM; scripts/dist-check tries them
	@scripts/setup rust python node dist
	@scripts/dist

bench: ## speed, rate accuracy and comparison with the peers; figures go to benches/runs/
	@scripts/setup rust python dpdk peers
	@scripts/bench

campaign: ## binaries with one feature each; the whole verdict matrix: every device, port, source and disturbance; README on a new machine (as root)
	@scripts/setup rust python system
	@scripts/campaign

dpdk: ## the shim that dpdk ports need: target/libsquall_dpdk.so
	@scripts/setup dpdk
	@scripts/dpdk

ui: ## the web page that the daemon carries: ui/dist
	@scripts/setup node
	@scripts/ui

docs: ## the generated references and the API documentation
	@scripts/setup rust
	cargo xtask generate
	cargo doc --no-deps --workspace --exclude squall-py

site: ## the documentation as a site that works from a folder: target/site/index.html
	@scripts/setup python
	@scripts/site

fmt: ## format all code
	cargo fmt --all
	cargo fmt --manifest-path fuzz/Cargo.toml
	.venv/bin/ruff format --quiet .
	cd ui && PATH=$$PWD/../target/tools/node/bin:$$PATH npx prettier --write --log-level warn src

lint: ## formatting, clippy, layers, dependencies, tidiness, generated files, reach, commits, the list of tests that may run again
	@scripts/setup rust python
	@scripts/test fmt clippy layers dependencies tidy generated reach commits words site forge rerun

fuzz: ## fuzz each target for SECONDS (60): make fuzz SECONDS=600 TARGETS=dissect
	@scripts/setup rust
	@scripts/fuzz $(or $(SECONDS),60) $(TARGETS)

generate: ## write schemas, references, man pages and completions again
	cargo xtask generate
