package tests

import (
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// pkg is a part of the output of go list -json.
type pkg struct {
	ImportPath   string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

// pure packages only decide: time comes from the tick, and all other input from their arguments.
var pure = slices.Concat(pureLibraries, []string{
	"polder/advise/policy", "polder/advise/histogram", "polder/advise/class", "polder/advise/guard", "polder/advise/disk",
	"polder/advise/limits", "polder/advise/cold", "polder/advise/layers", "polder/advise/network",
	"polder/advise/katalyst", "polder/advise/harvest", "polder/advise/koordinator", "polder/advise/koordinator/annotation",
	"polder/advise/koordinator/batch", "polder/advise/koordinator/suppress", "polder/advise/koordinator/burst",
	"polder/advise/koordinator/memory", "polder/advise/koordinator/resctrl", "polder/advise/koordinator/revert",
	"polder/isolate/plan", "polder/isolate/network/plan",
	"polder/evict/rule", "polder/evict/pick", "polder/evict/fleet/health", "polder/evict/dynamic",
	"polder/report/view", "polder/report/age", "polder/report/explain", "polder/report/object", "polder/report/amounts",
	"polder/report/score", "polder/report/page", "polder/report/replay",
	"polder/collect/kubernetes", "polder/collect/fleet/agents", "polder/collect/loadavg",
})

// pureMayImport are the project's packages that pure ones may import, beside others of their own tool.
var pureMayImport = slices.Concat([]string{"polder/lib/tick"}, pureLibraries)

// pureLibraries are the pure packages of lib.
var pureLibraries = []string{
	"polder/lib/choice", "polder/lib/clip", "polder/lib/phrase", "polder/lib/cpus", "polder/lib/usage", "polder/lib/podwait",
	"polder/lib/window",
	"polder/lib/qos", "polder/lib/quantity", "polder/lib/fields", "polder/lib/reason", "polder/lib/customconfig", "polder/lib/evictconfig",
	"polder/lib/series", "polder/lib/sloconfig", "polder/lib/kubepods", "polder/lib/schemata",
}

// impure are the standard library's packages with side effects.
var impure = []string{"os", "os/exec", "os/signal", "net", "net/http", "syscall", "log", "log/slog", "io/ioutil", "golang.org/x/sys/unix"}

// soleImporter names the one package that may import a heavy library.
var soleImporter = map[string]string{
	"github.com/json-iterator/go":                          "polder/lib/tick",
	"github.com/prometheus/client_golang":                  "polder/lib/metrics",
	"github.com/prometheus/procfs":                         "polder/collect/host",
	"github.com/opencontainers/cgroups":                    "polder/lib/cgroup",
	"github.com/opencontainers/runc/libcontainer":          "polder/evict/act",
	"github.com/opencontainers/runc/libcontainer/intelrdt": "polder/isolate/resctrl",
	"github.com/urfave/cli":                                "polder/lib/stage",
	"github.com/vishvananda/netlink":                       "polder/isolate/network",
	"github.com/google/nftables":                           "polder/isolate/network",
	"k8s.io/client-go":                                     "polder/lib/kube",
	"go.yaml.in/yaml":                                      "polder/lib/config",
	"k8s.io/utils/cpuset":                                  "polder/lib/cpus",
	"k8s.io/apimachinery/pkg/api/resource":                 "polder/lib/quantity",
	"github.com/cilium/ebpf":                               "polder/isolate/resched/onwait",
	"golang.org/x/term":                                    "polder/report",
	"github.com/chromedp":                                  "polder/tests/browser",
}

func listPackages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,TestImports,XTestImports", "polder/...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var list []pkg
	for d := json.NewDecoder(strings.NewReader(string(out))); d.More(); {
		var p pkg
		if err := d.Decode(&p); err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
	return list
}

// room is the top-level directory of one of our packages.
func room(path string) string {
	rest, ok := strings.CutPrefix(path, "polder/")
	if !ok {
		return ""
	}
	room, _, _ := strings.Cut(rest, "/")
	return room
}

func TestArchitecture(t *testing.T) {
	packages := listPackages(t)
	if len(packages) < 15 {
		t.Fatalf("go list names %d packages; want all of them", len(packages))
	}
	seen := map[string]bool{}
	for _, p := range packages {
		seen[p.ImportPath] = true
		all := slices.Concat(p.Imports, p.TestImports, p.XTestImports)
		for _, imported := range all {
			if slices.Contains(tools, room(imported)) && room(imported) != room(p.ImportPath) {
				t.Errorf("%s imports %s: tools share code in lib alone", p.ImportPath, imported)
			}
		}
		for _, imported := range p.Imports {
			for library, sole := range soleImporter {
				if imported != library && (!strings.HasPrefix(imported, library+"/") || soleImporter[imported] != "") {
					continue
				}
				if p.ImportPath != sole && !strings.HasPrefix(p.ImportPath, sole+"/") {
					t.Errorf("%s imports %s: only %s may", p.ImportPath, imported, sole)
				}
			}
		}
		if slices.Contains(pure, p.ImportPath) {
			checkPure(t, p)
		}
	}
	for _, path := range pure {
		if !seen[path] {
			t.Errorf("%s is in the list of pure packages and does not exist", path)
		}
	}
}

func checkPure(t *testing.T, p pkg) {
	t.Helper()
	for _, imported := range p.Imports {
		switch {
		case slices.Contains(impure, imported):
			t.Errorf("%s is pure and imports %s", p.ImportPath, imported)
		case room(imported) == "lib" && !slices.Contains(pureMayImport, imported):
			t.Errorf("%s is pure and imports %s", p.ImportPath, imported)
		}
	}
}

// Pure packages take the time from the tick.
func TestPurePackagesReadNoClock(t *testing.T) {
	for _, path := range pure {
		dir := "../" + strings.TrimPrefix(path, "polder/")
		out, _ := exec.Command("grep", "-rnE", `time\.(Now|Since|Until|Sleep|After|Tick|NewTimer|NewTicker)\(`, "--include=*.go", "--exclude=*_test.go", dir).Output() // no match is status 1
		if len(out) > 0 {
			t.Errorf("%s reads the clock:\n%s", path, out)
		}
	}
}

// The page on development names every package of the tools and of lib, and every directory of tests: by its path, or by its last element in
// the row of the directory above it.
func TestDevelopmentNamesEveryDirectory(t *testing.T) {
	page, err := os.ReadFile("../docs/development.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := slices.DeleteFunc(strings.Split(string(page), "\n"), func(line string) bool { return !strings.HasPrefix(line, "| `") })
	seen := map[string]bool{}
	for _, p := range listPackages(t) {
		dir := strings.TrimPrefix(p.ImportPath, "polder/")
		if rest, ok := strings.CutPrefix(dir, "tests/"); ok {
			first, _, _ := strings.Cut(rest, "/")
			dir = "tests/" + first
		}
		if seen[dir] || dir == "tests" {
			continue
		}
		seen[dir] = true
		if !slices.ContainsFunc(rows, func(row string) bool { return namesDirectory(row, dir) }) {
			t.Errorf("docs/development.md has no row that names %s", dir)
		}
	}
	if len(seen) < 80 {
		t.Errorf("%d directories are found; want all of them", len(seen))
	}
}

// namesDirectory reports whether a row of a table names a directory.
func namesDirectory(row, dir string) bool {
	first, what, _ := strings.Cut(strings.TrimPrefix(row, "| "), " | ")
	if strings.Contains(first, "`"+dir+"`") || strings.Contains(first, "`"+dir+"/`") {
		return true
	}
	above := strings.LastIndexByte(dir, '/')
	if above < 0 {
		return false
	}
	parent, name := dir[:above], dir[above+1:]
	isParents := strings.Contains(first, "`"+parent+"`") || strings.Contains(first, "`"+parent+"/…`")
	return isParents && strings.Contains(what, "`"+name+"`")
}
