package cpumanager

import (
	"fmt"
	"strings"
	"testing"

	"polder/lib/cpus"
)

// files are as kubelets have written them, including the checksums.
var files = []struct {
	name, text     string
	policy, shared string
	given          string
	exclusive      string
}{
	{"none", `{"policyName":"none","defaultCpuSet":"","checksum":1353318690}`, "none", "", "", ""},
	{"static, nothing given", `{"policyName":"static","defaultCpuSet":"0-7","checksum":14413152}`, "static", "0-7", "", ""},
	{
		"version 2", `{"policyName":"static","defaultCpuSet":"0,3-7","entries":{"b":{"web":"1","side":"2"},"a":{"init":"1","web":"1"}},"checksum":7}`,
		"static", "0,3-7", "a/init=1 a/web=1 b/side=2 b/web=1", "1-2",
	},
	{
		"version 3", `{"policyName":"static","defaultCpuSet":"0,6-7","entries":{"a":{"web":"1-2","side":"3-5"}},"podEntries":{"a":{"cpuSet":"1-5"}},"checksum":7}`,
		"static", "0,6-7", "a/=1-5 a/side=3-5 a/web=1-2", "1-5",
	},
	{"version 1", `{"policyName":"static","defaultCpuSet":"0,3-7","entries":{"0123abc":"1-2"},"checksum":7}`, "static", "0,3-7", "/0123abc=1-2", "1-2"},
	{"before the checksum", `{"policyName":"none","defaultCpuSet":"0-3"}`, "none", "0-3", "", ""},
	{"a later kubelet's", `{"policyName":"dynamic","defaultCpuSet":"0","entries":{"a":{"c":"1"}},"more":[{"x":1}]}`, "dynamic", "0", "a/c=1", "1"},
	{"an empty set gives nothing", `{"policyName":"static","defaultCpuSet":"0","entries":{"a":{"c":""},"b":null}}`, "static", "0", "", ""},
}

func (g Assignment) String() string { return fmt.Sprintf("%s/%s=%s", g.PodUID, g.Container, g.CPUs) }

func TestParse(t *testing.T) {
	for _, f := range files {
		s, err := Parse([]byte(f.text))
		if err != nil {
			t.Errorf("%s: %v", f.name, err)
			continue
		}
		given := strings.Trim(fmt.Sprint(s.Assignments), "[]")
		if s.Policy != f.policy || s.Default.String() != f.shared || given != f.given || s.Exclusive.String() != f.exclusive {
			t.Errorf("%s: policy %s, default %s, given %s, exclusive %s; want %s, %s, %s, %s",
				f.name, s.Policy, s.Default, given, s.Exclusive, f.policy, f.shared, f.given, f.exclusive)
		}
	}
}

// An invalid state is an error, never a state without assignments.
func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		``:                                 "cut off",
		`{"policyName":"static","defaultC`: "cut off",
		`{"policyName":"static","entries":{"a":{"c":"1"}}`: "cut off",
		`{"policyName":"static"}{"policyName":"none"}`:     "cut off",
		`[]`:                               "cut off",
		`null`:                             "policyName is missing",
		`{}`:                               "policyName is missing",
		`{"PolicyName":"static"}`:          "policyName is missing",
		`{"policyName":"","entries":null}`: "policyName is missing",
		`{"policyName":"static","defaultCpuSet":"0-"}`:                     "defaultCpuSet",
		`{"policyName":"static","defaultCpuSet":7}`:                        "cut off",
		`{"policyName":"static","entries":{"a":{"c":"1-99999999"}}}`:       `entry of pod "a", container "c"`,
		`{"policyName":"static","entries":{"a":{"c":1}}}`:                  "entry of pod a",
		`{"policyName":"static","entries":{"a":["1"]}}`:                    "entry of pod a",
		`{"policyName":"static","podEntries":{"a":{"cpuSet":"x"}}}`:        `entry of pod "a"`,
		`{"policyName":"static","entries":{"b":"0-8191"` + many(40) + `}}`: "more than 262144 CPUs",
		strings.Repeat(" ", MaxBytes+1):                                    "more than 4194304 bytes",
	} {
		s, err := Parse([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: state %v, error %v; want %q", text, s, err, want)
		}
		if err != nil && len(err.Error()) > 400 {
			t.Errorf("%.80s: an error of %d bytes", text, len(err.Error()))
		}
	}
}

// many are short entries that name all possible CPUs.
func many(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"p%d":{"c":"0-8191"}`, i)
	}
	return b.String()
}

// FuzzParse parses any bytes: an accepted state is complete, and has no more CPUs than the machine can have.
func FuzzParse(f *testing.F) {
	for _, file := range files {
		f.Add([]byte(file.text))
		f.Add([]byte(file.text[:len(file.text)/2]))
	}
	f.Add([]byte(`{"policyName":"static","entries":{"a":{"c":"0-8191,1","c":"2"}},"entries":{"b":"3"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Parse(data)
		if err != nil {
			if s != nil {
				t.Errorf("a state beside the error %v", err)
			}
			return
		}
		if s.Policy == "" {
			t.Error("no policy and no error")
		}
		all := cpus.New()
		for _, g := range s.Assignments {
			if g.CPUs.IsEmpty() {
				t.Errorf("given %v, which is nothing", g)
			}
			all = all.Union(g.CPUs)
		}
		if !all.Equals(s.Exclusive) {
			t.Errorf("exclusive %s, given %s", s.Exclusive, all)
		}
	})
}
