package main

import "slices"

// A tier is a part of the test suite that can be run alone: `make test-NAME`.
type tier struct {
	name  string
	does  string // what it runs, for people
	takes string // on two cores, with everything downloaded and built; docs/development.md has the table
	setup []setup
	runs  []run
	after bool // the next stage begins while it still runs
}

// A setup is a script that installs or builds what a tier needs. It runs once, logs its work to standard error, and does nothing
// if all of it exists.
type setup struct {
	script   string
	variable string // set to the last line that the script prints, for the tests; empty if it sets none
}

var (
	native  = setup{script: "scripts/setup-native"}
	browser = setup{script: "scripts/setup-browser"}
	kernel  = setup{script: "scripts/setup-vm"}
	debian  = setup{script: "scripts/setup-vm-root"}
	cluster = setup{script: "scripts/setup-cluster", variable: "POLDER_CLUSTER"}
)

// A run is one call of a program, nearly always of `go test`.
type run struct {
	packages []string // patterns of `go list`
	except   []string // patterns of excluded packages
	args     []string // flags of `go test`
	busyArgs []string // more of them, where other programs use most of the machine's CPU
	env      []string
	race     bool     // with the race detector, where there is a C compiler
	niceness int      // of the tests, where another tier beside it has time limits that a slow host would reach
	command  []string // a program that is not `go test`
	cpu      *used    // where its CPU time is added up
}

// apart are the packages that have their own tier, or that measure the machine and so run alone.
var apart = []string{"./tests/machine/...", "./tests/cluster/...", "./tests/node/...", "./tests/vm/...", "./tests/vmnode/..."}

// wholePipe are the packages that run the whole pipe for a while. They take too long between two edits.
var wholePipe = []string{"./tests/faults/...", "./tests/supervisor/...", "./tests/soak/..."}

// raced are the packages in which goroutines share memory: the race detector is worth the second build of all that they import.
var raced = []string{"./lib/stage/...", "./lib/metrics/...", "./lib/config/...", "./lib/cgroup/...", "./isolate/...", "./evict/...", "./report/..."}

// tiers lists all tiers. The targets of the Makefile name them in the order in which they run.
var tiers = []tier{
	{
		name: "quick", does: "unit tests and scripts; what has not changed since it passed is not run again", takes: "1 minute",
		setup: []setup{native},
		// The pages' commands take longer than all other tests of this tier, and few edits change them: they are in the next tier.
		runs: []run{{packages: []string{"./..."}, except: slices.Concat(apart, wholePipe), args: []string{"-timeout=20m", "-skip=^Test(Recording)?Commands$"}}},
	},
	{
		name: "native", takes: "6 minutes",
		does:  "everything that runs on this machine itself, on its real cgroups: all packages, those with goroutines under the race detector",
		setup: []setup{native},
		runs: []run{
			{packages: []string{"./..."}, except: slices.Concat(apart, raced), args: []string{"-count=1", "-timeout=30m"}},
			{packages: raced, race: true, args: []string{"-count=1", "-timeout=30m"}},
			{packages: []string{"./tests/machine/..."}, args: []string{"-count=1", "-p=1", "-timeout=30m"}},
		},
	},
	{
		name: "lint", does: "golangci-lint (.golangci.yml), shfmt, shellcheck", takes: "2 minutes",
		setup: []setup{native},
		runs:  []run{{command: []string{"scripts/lint"}}},
	},
	{
		name: "vm", does: "virtual machines (QEMU): cgroup v2, v1 and hybrid, systemd, faults, 48 CPUs", takes: "12 minutes",
		setup: []setup{kernel, debian},
		// A guest has a clock of its own and can wait; an API server that gets no CPU time ends its clients' requests.
		runs: []run{{
			packages: []string{"./tests/vm/..."}, env: []string{"POLDER_VM=1"}, niceness: 5,
			args: []string{"-count=1", "-timeout=60m"}, busyArgs: []string{"-parallel=1"},
		}},
	},
	{
		name: "cluster", does: "the real API server, scheduler and controllers on loopback", takes: "9 minutes",
		setup: []setup{cluster},
		runs:  []run{{packages: []string{"./tests/cluster/..."}, args: []string{"-count=1", "-p=2", "-timeout=45m"}}},
	},
	{
		name: "node", does: "a real kubelet with containerd and runc on this machine's cgroups", takes: "7 minutes",
		setup: []setup{cluster},
		runs:  []run{{packages: []string{"./tests/node/..."}, args: []string{"-count=1", "-p=2", "-timeout=45m"}}},
	},
	{
		name: "vmnode", takes: "20 minutes",
		does:  "the guides on a real node in a virtual machine: kubelet, cgroup v2, 48 CPUs; others with systemd, v2 and v1",
		setup: []setup{kernel, debian, cluster},
		// Three at once took three times the CPU time for the same steps.
		runs: []run{{
			packages: []string{"./tests/vmnode/..."}, env: []string{"POLDER_VM=1"},
			args: []string{"-count=1", "-parallel=1", "-timeout=60m"},
		}},
	},
	{
		name: "faults", does: "faults and hostile input at full length", takes: "6 to 9 minutes",
		setup: []setup{native},
		runs:  []run{{packages: []string{"./tests/faults/...", "./tests/supervisor/..."}, args: []string{"-count=1", "-parallel=4", "-timeout=60m"}, env: []string{"POLDER_DEEP=1"}}},
	},
	{
		name: "browser", does: "the page of report --to html and the colocation chart in a real Chromium",
		takes: "1 minute, and 2 more where the browser's library is not built yet",
		setup: []setup{browser},
		runs:  []run{{command: []string{"go", "test", "-C", "tests/browser", "-count=1", "-timeout=30m", "./..."}}},
	},
	{
		name: "fuzz", does: "each fuzz target for a minute (FUZZTIME), ten at a time", takes: "6 minutes alone, 13 beside others",
		// It takes all the CPU time that other tiers leave.
		after: true,
		runs:  []run{{command: []string{"nice", "-n", "19", "scripts/fuzz", "${FUZZTIME:-60s}"}}},
	},
}

// sets are names for several tiers; those of an inner list, a stage, run in parallel: while one waits the other computes.
var sets = map[string][][]string{
	"deep": {{"vm", "cluster"}, {"vmnode", "fuzz"}, {"node", "faults", "browser"}},
}
