package choice

import "testing"

var policies = []string{"katalyst", "koordinator", "harvest"}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		word string
		list []string
		want string
	}{
		{"harvest", policies, ""},
		{"harvset", policies, `"harvset": want one of katalyst, koordinator, harvest; did you mean harvest?`},
		{"gold", policies, `"gold": want one of katalyst, koordinator, harvest`},
		{"tyt", []string{"tty", "table"}, `"tyt": want tty or table; did you mean tty?`},
		{"", []string{"a"}, `"": want a`},
	} {
		got := ""
		if err := Check(c.word, c.list); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%q: %s; want %s", c.word, got, c.want)
		}
	}
}

func TestNearest(t *testing.T) {
	rules := []string{"memory-pressure-eviction-plugin", "cpu-pressure-eviction-plugin", "BEMemoryEvict", "BECPUEvict"}
	for _, c := range []struct {
		word string
		list []string
		want string
	}{
		{"koordinater", policies, "koordinator"},
		{"Koordinator", policies, "koordinator"},
		{"koord", policies, "koordinator"},
		{"k", policies, ""},
		{"catalist", policies, "katalyst"},
		{"htlm", []string{"explain", "html", "score"}, "html"},
		{"prometheos", []string{"prometheus"}, "prometheus"},
		{"memory", rules, "memory-pressure-eviction-plugin"},
		{"becpuevict", rules, "BECPUEvict"},
		{"klil", []string{"log", "kill"}, "kill"},
		{"silver", []string{"idle"}, ""},
		{"idel", []string{"idle", "weight", "none"}, "idle"},
		{"in", []string{"input"}, ""},
		{"äöü", policies, ""},
		{"koordinatorkoordinatorkoordinatorkoordina", policies, ""},
	} {
		if got := Nearest(c.word, c.list); got != c.want {
			t.Errorf("%q: %q; want %q", c.word, got, c.want)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"", "ab", 2},
		{"ab", "", 2},
		{"abc", "abc", 0},
		{"abc", "abd", 1},
		{"abc", "acb", 1},
		{"abc", "bc", 1},
		{"kitten", "sitting", 3},
		{"abcd", "badc", 2},
		{"ca", "abc", 3},
	} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("%q to %q: %d; want %d", c.a, c.b, got, c.want)
		}
	}
}
