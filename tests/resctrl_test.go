package tests

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"polder/lib/tick"
)

// This machine, unchanged: with no resctrl mounted, as almost everywhere, the key is reported as unavailable and left alone, and
// logged once; with it, what it can divide is in the tick, and a dry run reports what would be written.
func TestResctrlOfThisMachine(t *testing.T) {
	_, err := os.Stat("/sys/fs/resctrl/info")
	mounted := err == nil
	run := func(in []byte, tool string, args ...string) (*tick.Tick, string, []byte) {
		t.Helper()
		var out, errs bytes.Buffer
		cmd := exec.Command(filepath.Join(bin, tool), args...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, &errs
		if err := cmd.Run(); err != nil {
			t.Fatalf("%s: %v\n%s", tool, err, errs.String())
		}
		last := bytes.TrimSpace(out.Bytes())
		if i := bytes.LastIndexByte(last, '\n'); i >= 0 {
			last = last[i+1:]
		}
		l, err := tick.ParseLine(last)
		if err != nil {
			t.Fatalf("%s: %v\n%.500s", tool, err, last)
		}
		decoded, err := l.Decode(tick.SectionSample, tick.SectionAdvice, tick.SectionIsolation)
		if err != nil {
			t.Fatal(err)
		}
		return decoded, errs.String(), bytes.Clone(out.Bytes())
	}

	seen, _, line := run(nil, "collect", "--once", "--once-over", "10ms", "--node", "n1")
	if (seen.Sample.Resctrl != nil) != mounted {
		t.Fatalf("sample.resctrl is %+v; mounted: %v", seen.Sample.Resctrl, mounted)
	}
	for _, e := range seen.Sample.Errors {
		if e.Source == "resctrl" {
			t.Errorf("an error: %s", e.Error)
		}
	}
	const strategies = `"sample":{"config":{"koordinator":{"from":"by hand","resourceQOS":{"beClass":{"resctrlQOS":{"enable":true}}}}},`
	line = bytes.Replace(line, []byte(`"sample":{`), []byte(strategies), 1)
	advised, _, lines := run(bytes.Repeat(line, 3), "advise", "--policy", "koordinator")
	reasons := 0
	for text := range bytes.Lines(lines) {
		l, err := tick.ParseLine(bytes.TrimSpace(text))
		if err != nil {
			t.Fatal(err)
		}
		each, err := l.Decode(tick.SectionAdvice)
		if err != nil {
			t.Fatal(err)
		}
		for _, reason := range each.Advice.Reasons {
			if strings.HasPrefix(reason, "resctrl") {
				reasons++
				if unmounted := strings.Contains(reason, "not mounted at /sys/fs/resctrl"); unmounted == mounted || unmounted && !strings.HasSuffix(reason, "of BE stay unchanged") {
					t.Errorf("reason %q; mounted: %v", reason, mounted)
				}
			}
		}
	}
	named := len(advised.Advice.Resctrl) == 1 && advised.Advice.Resctrl[0].Group == "BE" && advised.Advice.Resctrl[0].Schemata == nil && advised.Advice.Resctrl[0].IfExists
	if reasons == 0 || !mounted && (reasons != 1 || !named) {
		t.Errorf("%d reasons of resctrl; groups %+v", reasons, advised.Advice.Resctrl)
	}

	// Today's advice, and another advice, by hand or from before resctrl was unmounted.
	groups := []string{`{"group":"BE","ifExists":true}`, `{"group":"polder-test","schemata":["L3:0=1"],"cgroups":["/polder-no-such"]}`}
	if mounted {
		groups = groups[1:]
	}
	for _, group := range groups {
		t.Run(group, func(t *testing.T) { isolateResctrl(t, run, mounted, group) })
	}
}

func isolateResctrl(t *testing.T, run func([]byte, string, ...string) (*tick.Tick, string, []byte), mounted bool, group string) {
	var by strings.Builder
	for i := range 3 {
		fmt.Fprintf(&by, `{"v":1,"node":"n1","time":%q,"advice":{"policy":"by hand","resctrl":[%s]}}`+"\n",
			time.Now().Add(time.Duration(i)*time.Millisecond).UTC().Format(time.RFC3339Nano), group)
	}
	args := []string{"--node", "n1", "--max-age", "0", "--journal", filepath.Join(t.TempDir(), "journal")}
	if mounted {
		args = []string{"--dry-run"}
	}
	done, log, all := run([]byte(by.String()), "isolate", args...)
	if mounted {
		if len(done.Isolation.Writes)+len(done.Isolation.Errors) == 0 {
			t.Errorf("isolation %+v", done.Isolation)
		}
		return
	}
	if i := done.Isolation; !slices.Equal(i.Unavailable, []string{"resctrl"}) || i.Errors != nil || i.Applied > 0 {
		t.Errorf("the last tick's isolation %+v", i)
	}
	const why = "unavailable: resctrl is not mounted at /sys/fs/resctrl"
	if strings.Count(log, why) != 1 || strings.Count(string(all), why) > 1 { // the tick with it may have been dropped for a newer one
		t.Errorf("want it once, in the log and in the ticks:\n%s\n%s", log, all)
	}
	if _, err := os.Stat("/sys/fs/resctrl/polder-test"); err == nil {
		t.Error("a group was created without a mount")
	}
}
