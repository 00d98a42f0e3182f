# Polder: see README.md. `make help` lists the targets.
GO      ?= go
BIN     := bin
TOOLS   := collect advise isolate evict report
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X polder/lib/stage.Version=$(VERSION)
FUZZTIME ?= 60s
SOAKTIME ?= 30m

export CGO_ENABLED := 0

.DEFAULT_GOAL := check
.PHONY: help build check test test-fast test-race test-vm test-faults-full test-cluster test-node test-vmnode fuzz lint golden bench bench-cluster soak demo install clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "%-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build the five tools into bin/
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/ $(TOOLS:%=./%)

check: lint test-fast build ## lint, test-fast and build

demo: build ## half a minute of the whole pipe on this machine, or of a recording
	@scripts/demo

test: lint test-race test-vm test-cluster test-node test-vmnode fuzz ## everything: lint, all tests under the race detector, virtual machines, real clusters, a minute's fuzz of every target

test-fast: ## unit tests and scripts, for between two edits
	$(GO) test -short ./...

test-race: ## all tests, the real cgroups of this machine among them, under the race detector
	CGO_ENABLED=1 $(GO) test -race -count=1 -p 1 -timeout 30m $$($(GO) list ./... | grep -vE '/tests/(vm|cluster|node)') # one at a time: some measure the machine

test-vm: ## the suites in virtual machines: cgroup v2, 48 CPUs; gets QEMU and a kernel from Debian first
	scripts/setup-vm
	scripts/setup-vm-root
	POLDER_VM=1 $(GO) test -count=1 -timeout 30m ./tests/vm/...

test-cluster: ## the real API server, scheduler and controllers on loopback; builds them first: a quarter of an hour, once
	POLDER_CLUSTER=$$(scripts/setup-cluster) && export POLDER_CLUSTER && $(GO) test -count=1 -p 2 -timeout 20m ./tests/cluster/...

test-node: ## a real kubelet with containerd and runc on this machine's cgroup v1; root; builds them first, as test-cluster does
	POLDER_CLUSTER=$$(scripts/setup-cluster) && export POLDER_CLUSTER && $(GO) test -count=1 -p 1 -timeout 20m ./tests/node/...

test-vmnode: ## the guide on a real node in a virtual machine: kubelet, cgroup v2, 48 CPUs; root; gets what test-vm and test-cluster get
	scripts/setup-vm
	POLDER_CLUSTER=$$(scripts/setup-cluster) && export POLDER_CLUSTER && POLDER_VM=1 $(GO) test -count=1 -timeout 20m ./tests/vmnode/...

test-faults-full: ## faults and hostile input at full length; prints the figures of docs/reliability.md
	@log=$$(mktemp); POLDER_FAULT_ROUNDS=100 POLDER_FAULT_SECONDS=30 POLDER_FAULT_CGROUPS=2000 \
		$(GO) test ./tests -count=1 -timeout 40m -v -run 'TestFault|TestHostile' >$$log 2>&1; status=$$?; \
	grep -E 'figures|^ *--- FAIL|^(ok|FAIL)' $$log; echo "the whole log: $$log"; exit $$status

fuzz: ## fuzz every target for FUZZTIME (60s), six at a time
	scripts/fuzz $(FUZZTIME)

lint: ## gofmt, go vet, staticcheck, shellcheck
	scripts/lint

golden: ## write what the tools print into the golden files
	$(GO) test ./tests -run 'TestScript|TestPages' -update

bench: ## the figures of docs/performance.md
	scripts/bench

bench-cluster: ## its figures of 1,000 nodes: five minutes, and the programs of test-cluster
	POLDER_CLUSTER=$$(scripts/setup-cluster) && export POLDER_CLUSTER && $(GO) test -run '^$$' -bench ThousandNodes -benchtime 1x -timeout 15m ./tests/cluster/report

soak: ## the pipe for SOAKTIME (30m) over cgroups that come and go; draws docs/soak.html
	scripts/soak --for $(SOAKTIME)

install: build ## copy the tools to $(DESTDIR)/usr/local/bin
	install -D -t $(DESTDIR)/usr/local/bin $(TOOLS:%=$(BIN)/%)

clean: ## remove what was built
	rm -rf $(BIN)
