package class

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"polder/lib/tick"
)

var idleTimes16 = Settings{Class: Idle, ServiceWeightFactor: 16}

// factors returns the weight factors in a list of cgroups as text.
func factors(list []tick.Cgroup) string {
	var texts []string
	for _, c := range list {
		if c.CPUWeightFactor != nil {
			texts = append(texts, fmt.Sprintf("%s x%d", c.Cgroup, *c.CPUWeightFactor))
		}
	}
	return strings.Join(texts, ", ")
}

// hostPods returns pods of a plain host, each "class cgroup".
func hostPods(list ...string) (pods []tick.Pod) {
	for i, text := range list {
		class, cgroup, _ := strings.Cut(text, " ")
		pods = append(pods, tick.Pod{UID: fmt.Sprint(i), QoS: class, QoSSource: tick.QoSFromRule, Cgroup: cgroup, UsageMilliCPU: new(10.0)})
	}
	return pods
}

// TestServicesBesideBatchAreMultiplied: every cgroup that is a sibling of batch's outermost one and contains pods has the same factor, but
// never one that contains batch, nor kubelet's.
func TestServicesBesideBatchAreMultiplied(t *testing.T) {
	for _, tt := range []struct {
		name         string
		pods         []string
		batchCgroups []string
		want         string
	}{
		{
			"beside",
			[]string{"reclaimed /batch", "shared /web", "system /system.slice", "dedicated /db"},
			nil,
			"/db x16, /system.slice x16, /web x16",
		},
		{"services deeper", []string{"reclaimed /batch", "shared /web/a", "shared /web/b/c"}, nil, "/web x16"},
		{"batch deeper", []string{"reclaimed /grid/1", "reclaimed /grid/2", "shared /web"}, []string{"/grid"}, "/web x16"},
		{"batch deeper, no cgroup of batch alone above", []string{"reclaimed /x/batch", "shared /x/web", "shared /db"}, nil, "/x/web x16"},
		{"batch at two depths", []string{"reclaimed /batch", "reclaimed /x/batch", "shared /x/web", "shared /db"}, nil, "/db x16, /x/web x16"},
		{"only services", []string{"shared /web"}, nil, ""},
		{"only batch", []string{"reclaimed /batch"}, nil, ""},
		{"kubelet's batch", []string{"reclaimed /kubepods/besteffort/pod1", "shared /kubepods/burstable/pod2", "system /system.slice"}, nil, ""},
		{"kubelet's services", []string{"reclaimed /batch", "shared /kubepods/burstable/pod2", "system /system.slice"}, nil, "/system.slice x16"},
		{"names like kubelet's", []string{"reclaimed /kubepods-jobs", "shared /kubepods-web"}, nil, "/kubepods-web x16"},
		{"a path that is not clean", []string{"reclaimed /batch", "shared /x/../../web", "shared /a//b", "shared /c/."}, nil, ""},
		{"the root", []string{"reclaimed /batch", "shared /"}, nil, ""},
	} {
		x := at(0, 500, 100)
		x.Sample.Pods, x.Sample.BatchCgroups = hostPods(tt.pods...), tt.batchCgroups
		a := &tick.Advice{}
		(&State{}).Advise(x, a, idleTimes16, small)
		if got := factors(a.Cgroups); got != tt.want {
			t.Errorf("%s: advised %q, want %q", tt.name, got, tt.want)
		}
		if got, want := factors(a.Fallback), strings.ReplaceAll(tt.want, "x16", "x1"); got != want {
			t.Errorf("%s: fallback %q, want %q", tt.name, got, want)
		}
		for _, factor := range []int{0, 1} {
			a := &tick.Advice{}
			(&State{}).Advise(x, a, Settings{Class: Idle, ServiceWeightFactor: factor}, small)
			if got := factors(a.Cgroups) + factors(a.Fallback); got != "" {
				t.Errorf("%s, factor %d: advised %q", tt.name, factor, got)
			}
		}
	}
}

// TestServicesHaveTheirOwnWeightsOnABusyMachine: from 80 % of the machine on, and until they have used less for 10 s. An unknown use
// changes nothing.
func TestServicesHaveTheirOwnWeightsOnABusyMachine(t *testing.T) {
	var st *State
	for _, step := range []struct {
		seconds    int
		all, batch float64
		factor     int64
	}{
		{0, 1700, 101, 16},
		{1, 1700, 100, 1},
		{2, 2000, 1900, 1},
		{3, -1, 0, 1},
		{10, 100, 50, 1},
		{11, 100, 50, 16},
		{12, -1, 0, 16},
		{12, 1700, -1, 16},
		{13, 2000, 50, 1},
		{9, 100, 50, 16}, // the clock was set back
	} {
		x := at(step.seconds, step.all, step.batch)
		if step.all < 0 {
			x.Sample.CPU.UsageMilliCPU = nil
		}
		if step.batch < 0 {
			x.Sample.Pods[0].UsageMilliCPU = nil
		}
		a := &tick.Advice{}
		st = st.Advise(x, a, idleTimes16, small)
		if c := entryOf(t, a, "/web"); c == nil || c.CPUWeightFactor == nil || *c.CPUWeightFactor != step.factor {
			t.Errorf("%+v: advised %+v", step, c)
		}
		isBusy := step.factor == 1
		if said := strings.Contains(strings.Join(a.Reasons, "\n"), "services have their own weights"); said != isBusy {
			t.Errorf("%+v: reasons %q", step, a.Reasons)
		}
	}
}

// While the machine's size is unknown services do not count as using too much of it, nor batch as running beside them.
func TestUnknownSizeOfTheMachine(t *testing.T) {
	for _, milliCPU := range []int64{0, 2000} {
		x, a := at(0, 500, 0), &tick.Advice{}
		s := Settings{Class: Idle, ServiceWeightFactor: 16, ReschedOnWait: true}
		(&State{}).Advise(x, a, s, Machine{MilliCPU: milliCPU, CgroupVersion: 2})
		if c := entryOf(t, a, "/web"); c == nil || *c.CPUWeightFactor != 16 || a.ReschedOnWait {
			t.Errorf("of %dm: advised %+v, on wait %t, reasons %q", milliCPU, c, a.ReschedOnWait, a.Reasons)
		}
	}
}

// TestServicesGetTheirOwnWeightsWithoutBatch: the original weight is advised for a minute after batch has gone, after a service has become
// batch or has gone, and after the factor was set to 1; then nothing is remembered.
func TestServicesGetTheirOwnWeightsWithoutBatch(t *testing.T) {
	for _, tt := range []struct {
		name     string
		pods     []string
		settings Settings
		want     string
	}{
		{"batch has gone", []string{"shared /web", "shared /db"}, idleTimes16, "/db x1, /web x1"},
		{"a service has gone", []string{"reclaimed /batch", "shared /db"}, idleTimes16, "/db x16, /web x1"},
		{"a service is batch now", []string{"reclaimed /batch", "reclaimed /web", "shared /db"}, idleTimes16, "/db x16"},
		{
			"batch is in a service's cgroup",
			[]string{"reclaimed /batch", "reclaimed /web/job", "shared /web/x", "shared /db"},
			idleTimes16,
			"/db x16, /web x1, /web/x x16",
		},
		{"factor 1", []string{"reclaimed /batch", "shared /web", "shared /db"}, Settings{Class: Idle, ServiceWeightFactor: 1}, "/db x1, /web x1"},
		{
			"class none",
			[]string{"reclaimed /batch", "shared /web", "shared /db"},
			Settings{Class: None, ServiceWeightFactor: 16},
			"/db x1, /web x1",
		},
	} {
		x := at(0, 500, 100)
		x.Sample.Pods = hostPods("reclaimed /batch", "shared /web", "shared /db")
		st := (*State)(nil).Advise(x, &tick.Advice{}, idleTimes16, small)
		for _, seconds := range []int{1, 59} {
			x.Time, x.Sample.Pods = begin.Add(time.Duration(seconds)*time.Second), hostPods(tt.pods...)
			a := &tick.Advice{}
			st = st.Advise(x, a, tt.settings, small)
			list := strings.Split(factors(a.Cgroups), ", ")
			slices.Sort(list)
			if got := strings.Join(list, ", "); got != tt.want {
				t.Errorf("%s, after %d s: advised %q, want %q", tt.name, seconds, got, tt.want)
			}
		}
		x.Time = begin.Add(61 * time.Second)
		a := &tick.Advice{}
		if st = st.Advise(x, a, tt.settings, small); strings.Contains(factors(a.Cgroups), "x1,") || strings.HasSuffix(factors(a.Cgroups), "x1") {
			t.Errorf("%s: still advised after a minute: %s", tt.name, factors(a.Cgroups))
		}
		if len(tt.pods) == 2 && tt.pods[0] == "shared /web" && st != nil {
			t.Errorf("%s: %+v is remembered", tt.name, st)
		}
	}
}

// TestTheFloorsWeightIsBesideServicesOwnWeights: batch that starves gets a weight that is computed for siblings with their own weights.
func TestTheFloorsWeightIsBesideServicesOwnWeights(t *testing.T) {
	var st *State
	for _, step := range []struct {
		seconds    int
		all, batch float64
		floor      bool
	}{
		{0, 2000, 500, false}, // the services use less than 80 %
		{1, 2000, 20, false},
		{11, 2000, 20, true},
		{12, 600, 500, true}, // now the services leave room, but the floor's weight stays for a while
		{30, 600, 500, true},
		{45, 600, 500, false},
	} {
		a := &tick.Advice{}
		st = st.Advise(at(step.seconds, step.all, step.batch), a, idleTimes16, small)
		if c := entryOf(t, a, "/batch"); *c.CPUIdle == step.floor {
			t.Errorf("%+v: %+v", step, c)
		}
		c := entryOf(t, a, "/web")
		isMultiplied := c != nil && c.CPUWeightFactor != nil && *c.CPUWeightFactor > 1
		if want := !step.floor && step.all-step.batch < 1600; isMultiplied != want {
			t.Errorf("%+v: %+v; multiplied: want %t", step, c, want)
		}
	}
}

// TestADesiredWeightHasNoFactor: a policy's own weight of a service stays.
func TestADesiredWeightHasNoFactor(t *testing.T) {
	a := &tick.Advice{Cgroups: []tick.Cgroup{{Cgroup: "/web", CPUWeight: new(int64(300))}}}
	(&State{}).Advise(at(0, 500, 100), a, idleTimes16, small)
	if c := &a.Cgroups[0]; c.CPUWeightFactor != nil || *c.CPUWeight != 300 {
		t.Errorf("%+v", c)
	}
}

// TestMultipliedWeightsAreUndoneAfterAPause: the minute begins with the first tick that undoes them, however long there was no tick, and
// anew if the clock was set back.
func TestMultipliedWeightsAreUndoneAfterAPause(t *testing.T) {
	const gap = 3600 // seconds without a tick
	for _, tt := range []struct {
		name  string
		first int
	}{{"batch has gone", gap}, {"the clock was set back", -gap}} {
		x := at(0, 500, 100)
		x.Sample.Pods = hostPods("reclaimed /batch", "shared /web")
		st := (*State)(nil).Advise(x, &tick.Advice{}, idleTimes16, small)
		for _, step := range []struct {
			seconds int
			want    string
		}{{0, "/web x1"}, {1, "/web x1"}, {59, "/web x1"}, {60, ""}} {
			x.Time, x.Sample.Pods = begin.Add(time.Duration(tt.first+step.seconds)*time.Second), hostPods("shared /web")
			a := &tick.Advice{}
			st = st.Advise(x, a, idleTimes16, small)
			if got := factors(a.Cgroups); got != step.want {
				t.Errorf("%s, after %d s: advised %q, want %q", tt.name, step.seconds, got, step.want)
			}
		}
	}
}
