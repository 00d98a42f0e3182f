package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"strings"
	"testing"
	"time"
)

// made is a record of n samples 5 s apart; change makes it another.
func made(n int, change func(i int, s *sample)) record {
	r := record{Begun: time.Unix(1e9, 0).UTC(), Version: "v1", Kernel: "6.1", CPUs: 2, IntervalSecs: 1, EverySecs: 5, LifeSecs: 8}
	for i := range n {
		s := sample{AtSecs: float64(5 * (i + 1)), Tools: map[string]use{}, Cgroups: 100, Made: int64(100 + 25*i), Ticks: int64(5 * (i + 1)), Pods: 100}
		for _, tool := range tools {
			s.Tools[tool] = use{RSSMiB: 12, AnonymousMiB: 5, Descriptors: 100, CPUPercent: 1}
		}
		if change != nil {
			change(i, &s)
		}
		r.Samples = append(r.Samples, s)
	}
	return r
}

func changed(tool string, change func(i int, u *use)) func(int, *sample) {
	return func(i int, s *sample) {
		u := s.Tools[tool]
		change(i, &u)
		s.Tools[tool] = u
	}
}

func TestJudge(t *testing.T) {
	const n = 40
	tests := []struct {
		name   string
		record record
		want   string // in the one failure; empty is flat
	}{
		{"flat", made(n, nil), ""},
		{"warm-up alone", made(n, changed("advise", func(i int, u *use) { u.RSSMiB = min(12, 2+float64(i)) })), ""},
		{"a leak", made(n, changed("evict", func(i int, u *use) { u.RSSMiB += 0.25 * float64(i) })), "evict grew from 15.0 to"},
		{"one peak", made(n, changed("evict", func(i int, u *use) {
			if i == n/2 {
				u.RSSMiB = 90
			}
		})), ""},
		{"descriptors", made(n, changed("collect", func(i int, u *use) { u.Descriptors += 2 * i })), "collect went from"},
		{"descriptors with cgroups", made(n, func(i int, s *sample) {
			s.Cgroups, s.Pods = int64(100+i), 100+i
			changed("collect", func(i int, u *use) { u.Descriptors += i })(i, s)
		}), ""},
		{"ticks are lost", made(n, func(i int, s *sample) { s.Ticks /= 2 }), "only 100 ticks of 200"},
		{"dead cgroups in the tick", made(n, func(i int, s *sample) { s.Pods += 5 * i }), "pods where 100 cgroups are"},
		{"the journal grows", made(n, func(i int, s *sample) { s.State = int64(i) << 19 }), "journal and state files grew"},
		{"too short", made(3, nil), "only 3 samples"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			failures := judge(test.record).failures
			switch {
			case test.want == "" && len(failures) > 0:
				t.Errorf("failures %q; want none", failures)
			case test.want != "" && (len(failures) != 1 || !strings.Contains(failures[0], test.want)):
				t.Errorf("failures %q; want one with %q", failures, test.want)
			}
		})
	}
}

func TestSlopePerHour(t *testing.T) {
	r := made(40, changed("report", func(i int, u *use) { u.RSSMiB = 10 + 5*float64(i+1)/3600 }))
	if got := judge(r).tools["report"].slopeMiBPerHour; math.Abs(got-1) > 1e-6 {
		t.Errorf("slope %g MiB an hour; want 1", got)
	}
}

func TestPageIsWellFormedAndSaysWhatWasSeen(t *testing.T) {
	r := made(360, changed("collect", func(i int, u *use) { u.RSSMiB = 20 + math.Sin(float64(i)) }))
	r.Log = []string{`1 × evict WARN "<x>"`}
	text := page(r, judge(r))
	for _, want := range []string{"Flat.", "collect", "MiB", "% of a core", "descriptors", "time, minutes", "&lt;x&gt;", "30m0s", "1800 ticks"} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, unwanted := range []string{"NaN", "Inf", "<script", "src=", "ZgotmplZ", "%!"} {
		if bytes.Contains(text, []byte(unwanted)) {
			t.Errorf("the page has %q", unwanted)
		}
	}
	checkXML(t, text)
	checkXML(t, page(made(3, nil), judge(made(3, nil))))
}

// checkXML finds elements that are not closed: the page is written so that it is XML but for meta's.
func checkXML(t *testing.T, text []byte) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(text))
	d.Strict = false
	d.AutoClose = []string{"meta"}
	d.Entity = xml.HTMLEntity
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func TestNiceStep(t *testing.T) {
	for top, want := range map[float64]float64{30: 5, 1.5: 0.2, 13.5: 5, 610: 200, 0.02: 0.002} {
		count := 5
		if top != 13.5 && top != 610 {
			count = 10
		}
		if got := niceStep(top, count); math.Abs(got-want) > 1e-9 {
			t.Errorf("niceStep(%g, %d) is %g; want %g", top, count, got, want)
		}
	}
}

func TestStatCPU(t *testing.T) {
	got, err := statCPU("7 (a )b) S 1 7 7 0 -1 4194304 1 0 0 0 150 50 0 0 20 0 1 0 9 1 1")
	if err != nil || got != 2*time.Second {
		t.Errorf("%v, %v; want 2s", got, err)
	}
	if _, err := statCPU("7 (x)"); err == nil {
		t.Error("a short stat is no error")
	}
}

func TestReadUseOfThisProcess(t *testing.T) {
	u, err := readUse(os.Getpid())
	if err != nil || u.RSSMiB <= 0 || u.AnonymousMiB > u.RSSMiB || u.Descriptors < 3 {
		t.Errorf("%+v, %v", u, err)
	}
}

func TestClassifyNamesEachCgroupOfTheLoad(t *testing.T) {
	text := classify("/polder-soak-1", loadPlan{standing: 60, churning: 40})
	if strings.Contains(text, "%!") || strings.Count(text, "cgroup: '/polder-soak-1/") != 3 {
		t.Errorf("rules:\n%s", text)
	}
}
