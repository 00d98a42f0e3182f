package engine

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"polder/lib/tick"
)

// Neither evict nor the packages that read samples for it use fields that are not decoded.
func TestUnreadFieldsAreUsedNowhere(t *testing.T) {
	types := map[string]reflect.Type{}
	for _, x := range []any{tick.Sample{}, tick.NodeCPU{}, tick.Pod{}, tick.Container{}, tick.Memory{}, tick.Advice{}} {
		types[reflect.TypeOf(x).Name()] = reflect.TypeOf(x)
	}
	var fields []string
	for _, name := range unreadFields {
		of, field, _ := strings.Cut(name, ".")
		if types[of] == nil {
			t.Fatalf("%s: no such type here", name)
		}
		if _, ok := types[of].FieldByName(field); !ok {
			t.Errorf("there is no field %s", name)
		}
		fields = append(fields, field)
	}
	use := regexp.MustCompile(`\.(` + strings.Join(fields, "|") + `)\b`)
	literal := regexp.MustCompile(`"[^"]*"`)
	files := 0
	for _, dir := range []string{"..", "../../lib/qos", "../../lib/sloconfig", "../../lib/customconfig", "../../lib/podwait", "../../lib/usage"} {
		err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() && entry.Name() == "acttest" {
				return fs.SkipDir
			}
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			files++
			source, err := os.ReadFile(path)
			for line := range strings.Lines(string(source)) {
				if use.MatchString(literal.ReplaceAllString(line, "")) {
					t.Errorf("%s uses what is not decoded (unread in run.go): %s", path, strings.TrimSpace(line))
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files < 50 {
		t.Errorf("only %d files were looked at", files)
	}
}
