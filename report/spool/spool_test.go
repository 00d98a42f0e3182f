package spool

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"polder/lib/tick"
)

const recorded = `{"v":1,"node":"n","time":"2026-11-21T12:00:00Z","sample":{},"advice":{"policy":"katalyst"},"isolation":{},` +
	`"network":{"classes":[{"link":"eth0","class":"batch"}]},"eviction":{}}` + "\n"

// A tick that is read again has every section that the screen shows, from a file as from a pipe.
func TestSections(t *testing.T) {
	path := filepath.Join(t.TempDir(), "recording")
	if err := os.WriteFile(path, []byte(recorded), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for name, open := range map[string]func() (*Spool, error){
		"a file": func() (*Spool, error) { return Open(file) },
		"a pipe": func() (*Spool, error) { return Open(strings.NewReader("")) },
	} {
		s, err := open()
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		line, err := tick.NewReader(strings.NewReader(recorded)).Next()
		if err != nil {
			t.Fatal(err)
		}
		number, err := s.Add(line)
		if err != nil {
			t.Fatal(err)
		}
		x, err := s.Tick(number)
		if err != nil {
			t.Fatal(err)
		}
		if x.Sample == nil || x.Advice == nil || x.Isolation == nil || x.Eviction == nil || x.Network == nil || len(x.Network.Classes) != 1 {
			t.Errorf("%s: %+v lacks a section", name, x)
		}
	}
}
