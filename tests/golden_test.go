package tests

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"polder/lib/tick"
	"polder/lib/tick/ticktest"
)

// Every tick that a script sends to a tool or expects of one follows the contract's JSON Schema. Invalid lines
// are in the scripts to be refused; a tick that breaks the schema on purpose is in a file whose name begins with "hostile".
func TestGoldensFollowTheSchema(t *testing.T) {
	scripts, err := filepath.Glob("script/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, path := range scripts {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range txtar.Parse(data).Files {
			if strings.HasPrefix(filepath.Base(file.Name), "hostile") {
				continue
			}
			for i, line := range bytes.Split(file.Data, []byte("\n")) {
				if _, err := tick.ParseLine(line); err != nil {
					continue
				}
				checked++
				if err := ticktest.Validate(line); err != nil {
					t.Errorf("%s: %s:%d: %v", path, file.Name, i+1, err)
				}
			}
		}
	}
	if checked < 20 {
		t.Errorf("%d ticks in %d scripts; want at least 20", checked, len(scripts))
	}
}
