package tests

import (
	"os"
	"strings"
	"testing"

	"polder/lib/customconfig"
)

// The page names every field of the configuration objects that evict reads, with its settings, and no other.
func TestConfigurationPage(t *testing.T) {
	page, err := os.ReadFile("../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range customconfig.Kinds {
		_, section, found := strings.Cut(string(page), "\n## "+kind.Name+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		section, _, _ = strings.Cut(section, "\nFields of `spec.config.reclaimedResourceConfig`")
		rows := map[string]string{}
		for line := range strings.Lines(section) {
			if cells := strings.Split(line, "|"); len(cells) > 3 && strings.HasPrefix(cells[1], " `") {
				rows[strings.Trim(cells[1], " `")] = cells[2]
			}
		}
		if !found || len(rows) < 5 {
			t.Fatalf("%s: %d rows", kind.Name, len(rows))
		}
		for _, f := range customconfig.Fields(kind) {
			_, path, _ := strings.Cut(f.Path, ".")
			row, ok := rows[path]
			if !ok {
				t.Errorf("%s: %s is not on the page", kind.Name, path)
			}
			for _, s := range f.Settings {
				if ok && !strings.Contains(row, "`"+s+"`") {
					t.Errorf("%s: the row of %s lacks %s", kind.Name, path, s)
				}
			}
			delete(rows, path)
		}
		for path := range rows {
			t.Errorf("%s: the page has %s, which is not read", kind.Name, path)
		}
	}
}
