package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"polder/advise/settings"
)

// Settings that are given and have no effect beside the others are named; none is where it takes effect or is a default.
func TestIneffectiveSettings(t *testing.T) {
	for _, tt := range []struct{ settings, want string }{
		{"", ""},
		{"guard-disk: on", "guard-disk"},
		{"guard-disk: off", ""},
		{"guard-target: 50\nguard-margin: 10", "guard-target guard-margin"},
		{"guard-target: 50\nguard: on", ""},
		{"guard-disk: on\npolicy: harvest", ""},
		{"guard-target: 50\nguard: off", "guard-target"},
		{"batch-network-ceiling: 10%", "batch-network-ceiling"},
		{"network-rate: 1Gbit", "network-rate"},
		{"network-links: eth0", "network-links"},
		{"batch-network-rate: off", ""},
		{"resched-interval: 5ms", ""},
		{"batch-class: none", ""},
		{"network-rate: 1Gbit\nguard-disk: on", "guard-disk network-rate"},
		{"batch-network-ceiling: 10%\nbatch-network-rate: 5%", ""},
		{"batch-network-ceiling: 10%\npolicy: koordinator", ""},
		{"resched-interval: 5ms\nresched-on-wait: off\nbatch-class: none", "resched-on-wait resched-interval"},
		{"resched-interval: 5ms\nresched-on-wait: off\nbatch-class: weight", ""},
	} {
		path := filepath.Join(t.TempDir(), "advise.yaml")
		if err := os.WriteFile(path, []byte(tt.settings), 0o600); err != nil {
			t.Fatal(err)
		}
		l := liveSettings{path: path, flag: "config", fromFlags: settings.Defaults()}
		next, err := l.load()
		if err != nil {
			t.Errorf("%q: %v", tt.settings, err)
			continue
		}
		var names []string
		for _, x := range next.ineffective() {
			names = append(names, x.name)
		}
		if got := strings.Join(names, " "); got != tt.want {
			t.Errorf("%q: %q have no effect; want %q", tt.settings, got, tt.want)
		}
	}
}
