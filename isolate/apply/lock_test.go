package apply

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A journal that another isolate replaces, or removes, between the opening and the locking is opened anew: what is locked is what the
// path names.
func TestTheLockIsOfTheFileThatThePathNames(t *testing.T) {
	for name, other := range map[string]func(path string) error{
		"replaced": func(path string) error {
			if err := os.WriteFile(path+".new", nil, 0o600); err != nil {
				return err
			}
			return os.Rename(path+".new", path)
		},
		"removed": os.Remove,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "journal")
			times := 0
			opened = func() {
				if times++; times <= 3 {
					if err := other(path); err != nil {
						t.Error(err)
					}
				}
			}
			defer func() { opened = func() {} }()
			j, err := OpenJournal(path, "/", time.Now)
			if err != nil {
				t.Fatal(err)
			}
			defer j.Close()
			first := "1"
			if err := j.append([]entry{{Controller: "cpu", Cgroup: "/a", File: "cpu.shares", First: &first}}, true); err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(path)
			if err != nil || len(data) == 0 {
				t.Errorf("the file that the path names holds %q, %v; want the entry", data, err)
			}
			if other, err := OpenJournal(path, "/", time.Now); err == nil {
				other.Close()
				t.Error("a second isolate has it, too")
			}
		})
	}
}
