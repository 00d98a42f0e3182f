package engine

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

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
	for _, dir := range []string{
		"..", "../../lib/qos", "../../lib/sloconfig", "../../lib/customconfig", "../../lib/podwait", "../../lib/usage",
	} {
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

// A tick without rates, the first one of a restarted collect, has a service's pressure but not the growth of it: the service still waits.
func TestServiceWaitsInATickWithoutRates(t *testing.T) {
	p := startEvict(t, "--rules", "service-waiting", "--service-waiting-enabled")
	var since []string
	for i, wait := range []*float64{new(500.0), nil, new(500.0)} {
		x := &tick.Tick{V: 1, Node: "n", Time: noon.Add(time.Duration(i) * time.Second), Sample: &tick.Sample{Pods: []tick.Pod{{
			UID: "s", Name: "s", QoS: tick.QoSShared, CPUWaitPermille: wait, CPUPressure: &tick.Pressure{Some: &tick.PressureLine{Avg10: 50}},
		}}}}
		for _, f := range p.put(x).Pressures {
			since = append(since, f.Since)
		}
	}
	if begin := noon.Format(time.RFC3339Nano); !slices.Equal(since, []string{begin, begin, begin}) {
		t.Errorf("waits since %q; want %s at each of three ticks", since, begin)
	}
	p.close()
}

// A pod that is listed twice counts once: no pod is evicted for twice what it requests.
func TestPodThatIsListedTwiceCountsOnce(t *testing.T) {
	p := startEvict(t, "--rules", "reclaimed-resource-pressure-eviction-plugin", "--reclaimed-tolerance", "0s")
	a := tick.Pod{UID: "a", Name: "a", QoS: tick.QoSReclaimed, Requests: &tick.Resources{ReclaimedMilliCPU: new(3000.0)}}
	unnamed := a
	unnamed.UID = ""
	for i, pods := range [][]tick.Pod{{a, a}, {a, unnamed, unnamed, a}} {
		e := p.put(&tick.Tick{
			V: 1, Node: "n", Time: noon.Add(time.Duration(i) * time.Second), Sample: &tick.Sample{Pods: pods},
			Advice: &tick.Advice{Policy: "katalyst", Reclaimed: &tick.Reclaimed{MilliCPU: new(int64(1000))}},
		})
		if got, want := e.Pressures[0].Value, []float64{3000, 9000}[i]; got != want {
			t.Errorf("pods listed %d times request %v, want %v", len(pods), got, want)
		}
	}
	p.close()
}
