package classify

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/lib/tick"
)

func parse(t *testing.T, text string) *Rules {
	t.Helper()
	r, err := Parse("rules.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestDefault(t *testing.T) {
	r, err := Parse("default.yaml", defaultFile)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		cgroup, class   string
		children, below bool
	}{
		{"/", "", false, true},
		{"/kubepods", "", false, true},
		{"/kubepods/burstable", "", false, true},
		{"/kubepods/pod1", "shared", true, false},
		{"/kubepods/burstable/pod1", "shared", true, false},
		{"/kubepods/besteffort/pod1", "reclaimed", true, false},
		{"/kubepods/besteffort/pod1/c", "", false, false},
		{"/kubepods.slice", "", false, true},
		{"/kubepods.slice/kubepods-burstable.slice", "", false, true},
		{"/kubepods.slice/kubepods-podabc.slice", "shared", true, false},
		{"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podabc.slice", "reclaimed", true, false},
		{"/system.slice", "system", false, false},
		{"/init.scope", "system", false, false},
		{"/batch.slice", "reclaimed", false, false},
		{"/web.slice", "shared", false, false},
		{"/web.slice/web.service", "", false, false},
		{"/other", "", false, false},
	}
	for _, tt := range tests {
		rule := r.Match(tt.cgroup)
		var class string
		var children bool
		if rule.IsPod() {
			class, children = rule.Class, rule.ChildContainers
		}
		if class != tt.class || children != tt.children {
			t.Errorf("%s: class %q, containers are children: %v; want %q, %v", tt.cgroup, class, children, tt.class, tt.children)
		}
		if got := r.Below(tt.cgroup); got != tt.below {
			t.Errorf("Below(%s) = %v; want %v", tt.cgroup, got, tt.below)
		}
	}
}

func TestGlobs(t *testing.T) {
	tests := []struct {
		glob, cgroup string
		match, below bool
	}{
		{"/a", "/a", true, false},
		{"/a", "/b", false, false},
		{"/a", "/a/b", false, false},
		{"/a*", "/abc", true, false},
		{"/*", "/a", true, false},
		{"/*", "/", false, true},
		{"/*", "/a/b", false, false},
		{"/a/[bc]?", "/a/bx", true, false},
		{"/a/[bc]?", "/a", false, true},
		{"/**", "/", true, true},
		{"/**", "/a/b/c", true, true},
		{"/a/**", "/a", true, true},
		{"/a/**", "/b", false, false},
		{"/a/**/z", "/a/z", true, true},
		{"/a/**/z", "/a/b/c/z", true, true},
		{"/a/**/z", "/a/b/c", false, true},
		{"/**/b/**/d", "/a/b/b/c/d", true, true},
		{"/**/b/**/d", "/a/c/d", false, true},
		{"/**/x/y", "/x/x/y", true, true},
	}
	for _, tt := range tests {
		r := parse(t, "rules: [{cgroup: '"+tt.glob+"', class: shared}]")
		if got := r.Match(tt.cgroup) != nil; got != tt.match {
			t.Errorf("%s matches %s = %v; want %v", tt.glob, tt.cgroup, got, tt.match)
		}
		if got := r.Below(tt.cgroup); got != tt.below {
			t.Errorf("%s below %s = %v; want %v", tt.glob, tt.cgroup, got, tt.below)
		}
	}
}

func TestParse(t *testing.T) {
	r := parse(t, `
rules:
  - cgroup: /a
    class: none
  - cgroup: /a*
    class: dedicated
    namespace: ns
    name: n
    requests: {milliCPU: 2000, memoryBytes: 1Gi, reclaimedMilliCPU: 1500, reclaimedMemoryBytes: 100}
    limits: {memoryBytes: 2G}
`)
	if r.Match("/a").IsPod() {
		t.Error("the first rule that matches does not win")
	}
	want := &tick.Resources{MilliCPU: new(2000.0), MemoryBytes: new(float64(1 << 30)), ReclaimedMilliCPU: new(1500.0), ReclaimedMemoryBytes: new(100.0)}
	got := r.Match("/ab")
	if diff := cmp.Diff(want, got.Requests); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(&tick.Resources{MemoryBytes: new(2e9)}, got.Limits); diff != "" {
		t.Errorf("limits (-want +got):\n%s", diff)
	}
	if got.Namespace != "ns" || got.Name != "n" || got.Class != tick.QoSDedicated {
		t.Errorf("rule = %+v", got)
	}
}

func TestParseRefuses(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"nothing", "", "rules.yaml: no rules"},
		{"no YAML", "rules: [", "rules.yaml"},
		{"no list of rules", "rules: 5", "rules.yaml:1: want a list, not `5`"},
		{"no list of rules, but keys", "rules:\n  cgroup: /a\n", "rules.yaml:2: want a list, not keys with values"},
		{"no rule", "rules:\n- 5\n", "rules.yaml:2: want keys with values, not `5`"},
		{"an unknown key", "rules:\n  - cgroup: /a\n    class: shared\n    clas: x\n", "rules.yaml:4: key clas"},
		{"an unknown class", "rules:\n  - cgroup: /a\n    class: best\n", `rules.yaml:3: class "best"`},
		{"no class", "rules:\n  - cgroup: /a\n", "rules.yaml:2: cgroup /a has no class"},
		{"no cgroup", "rules:\n  - class: shared\n", "rules.yaml: rule 1: no cgroup"},
		{"a relative cgroup", "rules:\n  - class: shared\n    cgroup: a\n", `rules.yaml:3: cgroup "a" does not begin with a slash`},
		{"the root", "rules: [{cgroup: /, class: shared}]", "rules.yaml:1: cgroup / is the whole machine"},
		{"a double slash", "rules: [{cgroup: /a//b, class: shared}]", "rules.yaml:1: cgroup \"/a//b\" has a double"},
		{"out of it", "rules: [{cgroup: /a/../b, class: shared}]", "rules.yaml:1: cgroup \"/a/../b\" holds .."},
		{"half a **", "rules: [{cgroup: /a**, class: shared}]", "rules.yaml:1: cgroup \"/a**\": ** can only"},
		{"an open [", "rules: [{cgroup: '/a[', class: shared}]", "rules.yaml:1: cgroup \"/a[\": \"a[\" is not a glob"},
		{"an unknown kind of containers", "rules: [{cgroup: /a, class: shared, containers: all}]", `rules.yaml:1: containers "all"`},
		{"twice", "rules:\n- {cgroup: /a, class: shared}\n- {cgroup: /a, class: system}\n", "rules.yaml:3: cgroup /a is already in line 2"},
		{"a negative amount", "rules:\n- cgroup: /a\n  class: shared\n  requests:\n    milliCPU: -1\n", `rules.yaml:5: "-1" is not a number of milli-CPU`},
		{"no amount", "rules: [{cgroup: /a, class: shared, limits: {memoryBytes: 1GiB}}]", `rules.yaml:1: "1GiB" is not an amount of memory`},
		{"NaN", "rules: [{cgroup: /a, class: shared, limits: {memoryBytes: .nan}}]", "is not an amount"},
		{"a control character", "rules: [{cgroup: /a, class: shared, name: \"a\\eb\"}]", "rules.yaml:1: name"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse("rules.yaml", []byte(tt.in))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Parse = %v; want %q", err, tt.want)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add(defaultFile, "/kubepods/burstable/pod1")
	f.Add([]byte("rules:\n  - cgroup: /a/**/[b-d]*\n    class: none\n    requests: {memoryBytes: 1Gi}\n"), "/a/x/c")
	f.Add([]byte("rules: [{cgroup: '/a[', class: shared}]"), "/")
	f.Add([]byte("rules: &a [*a]"), "")
	f.Fuzz(func(t *testing.T, data []byte, cgroup string) {
		r, err := Parse("rules.yaml", data)
		if err != nil {
			return
		}
		if rule := r.Match(cgroup); rule != nil {
			// a cgroup that matches must be reachable through its parents
			for at := cgroup; at != "/" && strings.HasPrefix(at, "/"); {
				at = at[:strings.LastIndexByte(at, '/')]
				if at == "" {
					at = "/"
				}
				if !strings.Contains(cgroup, "//") && !strings.HasSuffix(cgroup, "/") && !r.Below(at) {
					t.Errorf("a rule matches %q, and Below(%q) is false", cgroup, at)
				}
			}
			for _, q := range []*tick.Resources{rule.Requests, rule.Limits} {
				if q != nil && q.MemoryBytes != nil && !(*q.MemoryBytes >= 0) {
					t.Errorf("memory %v", *q.MemoryBytes)
				}
			}
		}
	})
}

// Below a cgroupRoot the rules find kubelet's cgroups, of either driver, and the root itself is no pod.
func TestDefaultBelow(t *testing.T) {
	data, err := DefaultBelow("/node-1/kube.slice")
	if err != nil {
		t.Fatal(err)
	}
	r, err := Parse("default.yaml", data)
	if err != nil {
		t.Fatalf("%v in\n%s", err, data)
	}
	for cgroup, want := range map[string]string{
		"/node-1/kube.slice/kubepods/besteffort/pod1": "reclaimed",
		"/node-1/kube.slice/kubepods/burstable/pod1":  "shared",
		"/node-1/kube.slice/kubepods/pod1":            "shared",
		"/node_1.slice/node_1-kube.slice/node_1-kube-kubepods.slice/node_1-kube-kubepods-besteffort.slice/node_1-kube-kubepods-besteffort-pod1.slice": "reclaimed",
		"/node_1.slice/node_1-kube.slice/node_1-kube-kubepods.slice/node_1-kube-kubepods-pod1.slice":                                                  "shared",
		"/node_1.slice":                         "",
		"/node_1.slice/node_1-kube.slice":       "",
		"/node-1":                               "",
		"/node-1/kube.slice":                    "",
		"/kubepods/besteffort/pod1":             "",
		"/system.slice":                         "system",
		"/other.slice":                          "shared",
		"/node_1.slice/node_1-kube.slice/x":     "",
		"/node_1.slice/node_1-kube.slice/x/pod": "",
	} {
		got := ""
		if rule := r.Match(cgroup); rule != nil {
			got = rule.Class
		}
		if got != want {
			t.Errorf("%s: class %q; want %q", cgroup, got, want)
		}
	}
	for _, root := range []string{"", "/"} {
		if data, err := DefaultBelow(root); err != nil || string(data) != string(defaultFile) {
			t.Errorf("cgroupRoot %q changes the rules: %v", root, err)
		}
	}
	for _, bad := range []string{"a", "/a*", "/a/", "/a//b", "/a/..", "/a: b", "/a #b", "/a'b", "/a\nb"} {
		if _, err := DefaultBelow(bad); err == nil {
			t.Errorf("cgroupRoot %q is accepted", bad)
		}
	}
}
