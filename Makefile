# Polder: see README.md. `make help` lists the targets.
GO      ?= go
BIN     := bin
TOOLS   := collect advise isolate evict report
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X polder/lib/stage.Version=$(VERSION)
PREFIX  ?= /usr/local
SOAKTIME ?= 30m
TIER    := $(GO) run ./tests/run $(TESTFLAGS)

export CGO_ENABLED := 0

.DEFAULT_GOAL := check
.PHONY: help build check test test-deep lint test-vm test-cluster test-node test-vmnode test-faults test-browser fuzz golden bench bench-cluster bench-colocation bench-disks bench-guard bench-offers soak demo man install uninstall dist dist-check clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "%-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build the five tools into bin/
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/ $(TOOLS:%=./%)

check: ## lint, unit tests and scripts, to run between two edits: two minutes at most
	@$(TIER) lint quick

test: ## everything that runs on this machine itself, on its real cgroups; as root it installs missing packages: ten minutes the first time
	@$(TIER) native

test-deep: ## virtual machines, real clusters and nodes, faults at length, a minute's fuzz of each target: 35 to 46 minutes
	@$(TIER) deep

lint: ## golangci-lint (.golangci.yml), shfmt, shellcheck
	@$(TIER) lint

test-vm: ## of test-deep: the suites in virtual machines
	@$(TIER) vm

test-cluster: ## of test-deep: the real API server, scheduler and controllers on loopback
	@$(TIER) cluster

test-node: ## of test-deep: a real kubelet with containerd and runc on this machine's cgroups
	@$(TIER) node

test-vmnode: ## of test-deep: the guides on a real node in a virtual machine
	@$(TIER) vmnode

test-faults: ## of test-deep: faults and hostile input at the length of docs/reliability.md
	@$(TIER) faults

test-browser: ## of test-deep: the page of report --to html and the chart of docs/colocation.md in a real browser
	@$(TIER) browser

fuzz: ## of test-deep: fuzz every target for FUZZTIME (60s), ten at a time
	@$(TIER) fuzz

golden: ## write the tools' output to the golden files
	$(GO) test ./tests -run 'TestScript|TestPages|TestConfigurationPage' -update
	$(GO) test ./advise/settings -run TestConfigurationPage -update

bench: ## the figures of docs/performance.md
	scripts/bench

bench-cluster: ## its figures of 1,000 nodes: five minutes, and the programs of test-cluster
	POLDER_CLUSTER=$$(scripts/setup-cluster) && export POLDER_CLUSTER && $(GO) test -run '^$$' -bench ThousandNodes -benchtime 1x -timeout 15m ./tests/cluster/report

bench-colocation: ## latency of services and CPU time of batch, compared with a one-line shell script: under half an hour, writes docs/colocation.md and .svg; ROUNDS=N: with N rounds; QUICK=1: 4 minutes, prints
	scripts/setup-bench
	$(if $(QUICK),,scripts/setup-vm || true) # without virtual machines the page says so
	$(if $(QUICK),,POLDER_CLUSTER=$$(scripts/setup-cluster) && export POLDER_CLUSTER &&) COLOCATION_OUTPUT=$(if $(QUICK),,$(CURDIR)/docs/colocation.md) $(GO) test -run '^$$' -bench Colocation -benchtime 1x -timeout 100m ./tests/colocation

bench-disks: ## latency of a service beside a job that fills the same disk, here and in a guest with cgroup v2: ten minutes, writes its sections of docs/colocation.md
	scripts/setup-bench
	scripts/setup-vm
	COLOCATION_OUTPUT=$(CURDIR)/docs/colocation.md $(GO) test -run '^$$' -bench Disks -benchtime 1x -timeout 60m ./tests/colocation

bench-guard: ## how often the guard changes batch's limits while a real service's load alternates, and what it costs batch while that is constant: 20 minutes, prints; GUARD_SECONDS=N: N seconds of the first
	scripts/setup-bench
	$(GO) test -run '^$$' -bench Guard -benchtime 1x -timeout 2h ./tests/colocation

bench-offers: ## each policy's offer on real load, with the real advise: OFFERS_TRACES=DIR has PlanetLab's and Alibaba's traces; a minute
	$(GO) test -run '^$$' -bench Offers -benchtime 1x -timeout 30m ./tests/offers

soak: ## the pipe for SOAKTIME (30m) over cgroups that are created and removed; draws docs/soak.html
	scripts/soak --for $(SOAKTIME)

demo: build ## Polder's effect in under a minute: a service alone, beside a batch job, and with Polder; or a recording
	@$(GO) build -o bin/load ./tests/colocation/load
	@scripts/demo

man: build ## the tools' manual pages, from their flags, into bin/man/
	@mkdir -p $(BIN)/man
	@for tool in $(TOOLS); do $(BIN)/$$tool --generate-man >$(BIN)/man/$$tool.1 || exit 1; done
	@for tool in collect evict report; do $(BIN)/$$tool fleet --generate-man >$(BIN)/man/$$tool-fleet.1 || exit 1; done

install: build man ## tools, manual pages, completion, units and a first configuration, below PREFIX=/usr/local (DESTDIR=)
	scripts/install -p "$(PREFIX)" -d "$(DESTDIR)"

uninstall: ## stop Polder, restore what isolate changed, and remove what install has copied
	scripts/uninstall -p "$(PREFIX)" -d "$(DESTDIR)"

dist: ## the files of a release, in dist/: static tarballs, .deb and .rpm, the image, the chart, SBOMs, checksums; the same bytes from the same commit
	scripts/dist -o dist

dist-check: ## build dist twice, in different directories and without a common cache, and compare: ten minutes
	scripts/dist-check

clean: ## remove what was built
	rm -rf $(BIN) dist
