package settings

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/advise/policy"
	"polder/lib/config"
)

var update = flag.Bool("update", false, "write the table of settings into docs/configuration.md")

// Each row has a name, a usage and a value of its own, and reads the text that it formats.
func TestRows(t *testing.T) {
	s := Defaults()
	rows, others := s.Rows(), new(Settings).Rows()
	into, names := map[any]bool{}, map[string]bool{}
	for i, r := range rows {
		at := reflect.ValueOf(r.Value).Elem().FieldByName("into").Pointer()
		if r.Name == "" || r.Usage == "" || r.Format == "" || r.Default == "" || names[r.Name] || into[at] {
			t.Errorf("setting %q: %+v; want a name, a usage, a default and a value that no other setting has", r.Name, r)
		}
		names[r.Name], into[at] = true, true
		if r.Policy != "" && !slices.ContainsFunc(Policies, func(p policy.Policy) bool { return p.Name == r.Policy }) {
			t.Errorf("setting %s: %q is no policy", r.Name, r.Policy)
		}
		if strings.TrimSuffix(r.String(), "0s") == strings.TrimSuffix(r.Default, "0s") { // otherwise it depends on the machine or on the policy
			if err := others[i].Set(r.String()); err != nil || others[i].String() != r.String() {
				t.Errorf("setting %s: its default is read as %s, %v; want %s", r.Name, others[i], err, r)
			}
		}
		for _, word := range r.Words {
			if err := others[i].Set(word); err != nil || others[i].String() != word {
				t.Errorf("setting %s: %s is read as %s, %v", r.Name, word, others[i], err)
			}
		}
	}
	if len(rows) < 25 {
		t.Errorf("%d settings", len(rows))
	}
}

// A value out of bounds is rejected, and leaves the old value unchanged.
func TestBounds(t *testing.T) {
	bad := map[string][]string{
		"policy":               {"", "gold"},
		"reserved-cpus":        {"1-0x", "3-1", "9999"},
		"batch-class":          {"", "fifo"},
		"service-weight":       {"", "0", "101", "-16", "1.5", "x"},
		"resched-on-wait":      {"", "true", "1ms"},
		"resched-interval":     {"", "1", "-1ms", "100us", "11ms", "x"},
		"guard":                {"", "maybe"},
		"guard-disk":           {"", "maybe"},
		"guard-target":         {"", "0", "-1", "100001", "NaN", "1%"},
		"guard-margin":         {"x"},
		"batch-memory":         {"on"},
		"service-memory":       {"on"},
		"batch-disk":           {"", "all"},
		"batch-reclaim":        {"", "on", "Cold"},
		"disk-cost":            {"", ";", "vda=", "=rpct:5", "vda=rpct:101", "vda=rlat:0", "vda=rlat:NaN", "vda=min:0", "vda=pace:5", "vda=rlat", "vda=rlat:5,rlat:6", "vda;vda"},
		"batch-disk-max":       {"", "sda", "sda=", "=read:1Mi", "sda=read:1Ki", "sda=reads:3", "sda=reads:x", "sda=speed:5", "sda=read:1Mi,read:2Mi", "sda=reads:5;sda=reads:6"},
		"reserve-cpu":          {"", "-1", "many", "NaN", "0.0001"},
		"reserve-memory":       {"", "-1", "lots"},
		"floor-cpu":            {"-500m"},
		"hold":                 {"", "1", "-1s"},
		"shrink-step":          {"x"},
		"unknown-cpu":          {"x"},
		"unknown-memory":       {"1GiB"},
		"share-overlap":        {"", "yes", "Short"},
		"pool-min-cpus":        {"0", "1.5", "-3"},
		"limit":                {"none"},
		"harvest-price":        {"-1", "1000001", "NaN", "Inf"},
		"harvest-margin":       {"0.02", "-1%", "101%", "NaN%", "%"},
		"harvest-first-margin": {"3"},
		"harvest-step":         {"x%"},
		"harvest-hold":         {"soon"},
		"harvest-new-pod":      {"-5m"},
		"harvest-burst":        {"99.9"},
		"harvest-burst-hold":   {"30"},
		"harvest-min-cpus":     {"0", "x"},

		"batch-network-rate":    {"", "10", "0%", "-1%", "101%", "NaN%", "NaNMbit", "1Kbit", "1Mb", "1e300Gbit", "-5Mbit", "%", "Mbit"},
		"batch-network-ceiling": {"100", "x%"},
		"network-links":         {"", "eth0,", "eth 0", "../eth0", "a/b", "sixteen-letters-"},
		"network-rate":          {"", "off", "10%", "1000000000", "63Kbit", "1000001Gbit"},
	}
	s := Defaults()
	for _, r := range s.Rows() {
		before := r.String()
		if len(bad[r.Name]) == 0 {
			t.Errorf("no bounds of %s are tested", r.Name)
		}
		for _, text := range bad[r.Name] {
			if err := r.Set(text); err == nil || r.String() != before {
				t.Errorf("%s %q is accepted, and is now %s", r.Name, text, r)
			}
		}
	}
}

// A configuration file sets the same values as the flags.
func TestRowsAreReadFromAFile(t *testing.T) {
	const file = "policy: harvest\nreserve-cpu: 500m\nreserve-memory: 2Gi\nhold: 1m\nharvest-step: 10%\nguard: 'off'\nharvest-price: 3\npool-min-cpus: 4\nlimit:\n"
	s := Defaults()
	into := map[string]any{}
	for _, r := range s.Rows() {
		into[r.Name] = r.Value
	}
	lines, err := config.DecodeKeys("x.yaml", []byte(file), into)
	if err != nil {
		t.Fatal(err)
	}
	want := Defaults()
	for _, r := range want.Rows() {
		for line := range strings.Lines(file) {
			if name, value, _ := strings.Cut(strings.TrimSpace(line), ": "); name == r.Name {
				if err := r.Set(strings.Trim(value, "'")); err != nil {
					t.Error(err)
				}
			}
		}
	}
	if d := cmp.Diff(want, s); d != "" {
		t.Errorf("settings (-want +got):\n%s", d)
	}
	if lines["hold"] != 4 || lines["limit"] != 0 {
		t.Errorf("lines %v; want 4 for hold, and none for limit, which is null", lines)
	}
}

// table returns the page's table of the settings.
func table() string {
	var b strings.Builder
	b.WriteString("| setting | of policy | default | values | in Katalyst's or Koordinator's objects |\n|---|---|---|---|---|\n")
	s := Defaults()
	for _, r := range s.Rows() {
		owner, same := r.Policy, r.Koordinator
		if owner == "" {
			owner = "all"
		}
		if r.Katalyst != "" {
			same = "`" + r.Katalyst + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", r.Name, owner, r.Default, r.Format, same)
	}
	return b.String()
}

// The page has every setting; go test -update writes the table.
func TestConfigurationPage(t *testing.T) {
	const path = "../../docs/configuration.md"
	const begin, end = "<!-- advise's settings, written by make golden -->\n", "<!-- end -->"
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(data), begin)
	got, after, ends := strings.Cut(rest, end)
	if !found || !ends {
		t.Fatalf("%s has no %q with %q after it", path, begin, end)
	}
	want := "\n" + table() + "\n"
	if *update {
		if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s is not what the table has; run make golden (-want +got):\n%s", path, d)
	}
}
