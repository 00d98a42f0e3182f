# Polder: see README.md. `make help` lists the targets.
GO      ?= go
BIN     := bin
TOOLS   := collect advise isolate evict report
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X polder/lib/stage.Version=$(VERSION)
FUZZTIME ?= 10s
SOAKTIME ?= 30m

export CGO_ENABLED := 0

.DEFAULT_GOAL := check
.PHONY: help build check test test-fast test-race test-vm fuzz lint golden bench soak demo install clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "%-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build the five tools into bin/
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/ $(TOOLS:%=./%)

check: lint test-fast build ## lint, test-fast and build

demo: build ## half a minute of the whole pipe on this machine, or of a recording
	@scripts/demo

test: lint test-race test-vm fuzz ## everything: lint, all tests under the race detector, virtual machines, a short fuzz of every target

test-fast: ## unit tests and scripts, for between two edits
	$(GO) test -short ./...

test-race: ## all tests, the real cgroups of this machine among them, under the race detector
	CGO_ENABLED=1 $(GO) test -race -count=1 -p 1 -timeout 30m $$($(GO) list ./... | grep -v /tests/vm) # one at a time: some measure the machine

test-vm: ## the suites in virtual machines: cgroup v2, 48 CPUs; gets QEMU and a kernel from Debian first
	scripts/setup-vm
	POLDER_VM=1 $(GO) test -count=1 -timeout 30m ./tests/vm/...

fuzz: ## fuzz every target for FUZZTIME (10s)
	scripts/fuzz $(FUZZTIME)

lint: ## gofmt, go vet, staticcheck, shellcheck
	scripts/lint

golden: ## write what the tools print into the golden files
	$(GO) test ./tests -run TestScript -update

bench: ## the figures of docs/performance.md
	scripts/bench

soak: ## the pipe for SOAKTIME (30m) over cgroups that come and go; draws docs/soak.html
	scripts/soak --for $(SOAKTIME)

install: build ## copy the tools to $(DESTDIR)/usr/local/bin
	install -D -t $(DESTDIR)/usr/local/bin $(TOOLS:%=$(BIN)/%)

clean: ## remove what was built
	rm -rf $(BIN)
