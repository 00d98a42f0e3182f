package page

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/lib/tick"
)

const attack = `</script><script>alert(1)</script>`

var begin = time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)

// tickAt is a tick of a node of 4 CPUs.
func tickAt(second int, use float64, pods ...tick.Pod) *tick.Tick {
	f := tick.Ptr[float64]
	return &tick.Tick{
		V: 1, Node: "n", Time: begin.Add(time.Duration(second) * time.Second),
		Sample: &tick.Sample{
			IntervalSeconds: f(1),
			Topology: &tick.Topology{
				CPUs: "0-3", Cores: []string{"0,2", "1,3"},
				NUMANodes: []tick.TopologyNUMA{{ID: 0, CPUs: "0-3"}},
			},
			CPU:  &tick.NodeCPU{UsageMilliCPU: &use},
			Pods: pods,
		},
		Advice: &tick.Advice{
			Policy: "katalyst", Reclaimed: &tick.Reclaimed{MilliCPU: new(int64(4000 - use))},
			Pools: []tick.Pool{{Name: "share", CPUs: "0-1"}, {Name: "reclaim", CPUs: "2-3"}}, Reasons: []string{"a reason"},
		},
	}
}

func service(name string, milliCPU float64) tick.Pod {
	return tick.Pod{UID: name, Namespace: "shop", Name: name, QoS: tick.QoSShared, UsageMilliCPU: &milliCPU}
}

// read is the data as the page's program reads it.
func read(t *testing.T, r *Recording) data {
	t.Helper()
	text, err := r.Data(false)
	if err != nil {
		t.Fatal(err)
	}
	var d data
	var raw struct {
		Nodes []struct {
			Values map[string][]*float64
		}
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(bytes.ReplaceAll(text, []byte("null"), []byte("-1")), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// No name adds markup to the page.
func TestHostileNamesAreNoMarkup(t *testing.T) {
	var r Recording
	x := tickAt(0, 1000, service(attack, 500))
	x.Node = attack
	x.Advice.Policy, x.Advice.Reasons = attack, []string{attack, "<!--" + attack, "a\u2028b\u2029c\x00d\u202e"}
	x.Advice.Pools = append(x.Advice.Pools, tick.Pool{Name: attack, CPUs: "0"}, tick.Pool{Name: "x", CPUs: attack})
	x.Advice.Cgroups = []tick.Cgroup{{Cgroup: attack, CPUSetCPUs: attack}}
	x.Isolation = &tick.Isolation{Errors: []tick.IsolationError{{Cgroup: attack, Key: attack, Error: attack}}, Refused: attack}
	x.Eviction = &tick.Eviction{
		Taints: []tick.Taint{{Key: attack, Effect: attack}}, Errors: []string{attack},
		Evictions: []tick.PodEviction{{UID: attack, Namespace: attack, Name: attack, Rule: attack, Scope: attack, Message: attack, State: attack, Error: attack}},
	}
	x.Sample.Errors = []tick.SourceError{{Source: attack, Error: attack}}
	x.Sample.Pods[0].QoS, x.Sample.Pods[0].Containers = attack, []tick.Container{{Name: attack, CPUSetCPUs: attack}}
	r.Add(x)
	r.Inserted = []string{"advice"}
	var page strings.Builder
	if err := r.Write(&page); err != nil {
		t.Fatal(err)
	}
	text := page.String()
	if n := strings.Count(strings.ToLower(text), "<script"); n != 3 {
		t.Errorf("the page has %d scripts; want its data, the library and its own", n)
	}
	if n := strings.Count(strings.ToLower(text), "</script"); n != 3 {
		t.Errorf("the page ends %d scripts; want 3", n)
	}
	embedded := regexp.MustCompile(`(?s)id="data">(.*?)</script>`).FindStringSubmatch(text)
	if embedded == nil || !json.Valid([]byte(embedded[1])) {
		t.Fatal("the page's data is not JSON")
	}
	for _, c := range []string{"<", ">", "&", "\n", "\u2028", "\u202e", "\x00"} {
		if strings.Contains(embedded[1], c) {
			t.Errorf("the page's data has %q", c)
		}
	}
	if !strings.Contains(embedded[1], `\u003c/script\u003e`) {
		t.Error("the names are not in the page")
	}
}

// The page is one file: nothing in it is fetched from elsewhere, and its policy lets nothing else run.
func TestPageIsSelfContained(t *testing.T) {
	var r Recording
	r.Add(tickAt(0, 1000))
	var page strings.Builder
	if err := r.Write(&page); err != nil {
		t.Fatal(err)
	}
	text := page.String()
	const licence = "https://github.com/danvk/dygraphs/blob/v2.2.1/LICENSE.txt" // a comment of the library
	for _, address := range regexp.MustCompile(`(?:https?:)?//[a-z0-9.-]+\.[a-z]+[^"' )]*`).FindAllString(text, -1) {
		if address != licence {
			t.Errorf("the page names the address %s", address)
		}
	}
	if regexp.MustCompile(`(?i)<(img|iframe|link[^>]+href="[^d]|script[^>]+src)|@import|url\(|sourceMappingURL`).MatchString(text) {
		t.Error("the page fetches something")
	}
	if !strings.Contains(text, "connect-src 'none'") || strings.Contains(Policy(false), "unsafe-inline' 'sha") || !strings.Contains(text, "MIT licence") {
		t.Errorf("policy %s", Policy(false))
	}
	if strings.Contains(program, "innerHTML") || strings.Contains(program, "insertAdjacentHTML") || strings.Contains(program, "document.write") {
		t.Error("the page's program sets markup")
	}
}

// A long recording is drawn by averages, with the least offer and the largest use of each point, and the page notes it.
func TestLongRecordingsBecomeAverages(t *testing.T) {
	var r Recording
	for i := range 3 * mostPoints {
		use := 1000.0
		if i == 20001 {
			use = 3500 // a peak of one second
		}
		r.Add(tickAt(i, use, service("web", use)))
	}
	n := read(t, &r).Nodes[0]
	if n.PerPoint != 4 || len(n.Times) > mostPoints || len(n.Times) < mostPoints/2 {
		t.Fatalf("%d points of %d ticks", len(n.Times), n.PerPoint)
	}
	i := 20001 / 4
	got := []optional{n.Figures["services"][i], n.Figures["servicesHigh"][i], n.Figures["offered"][i], n.Figures["offeredLow"][i], n.Figures["services"][i+1]}
	if diff := cmp.Diff([]optional{1.63, 3.5, 2.38, 0.5, 1}, got); diff != "" {
		t.Errorf("the point with the peak (-want +got):\n%s", diff)
	}
	if !strings.Contains(strings.Join(n.Notes, " "), "Each point is the average of 4 ticks.") {
		t.Errorf("notes %q", n.Notes)
	}
}

// What is not known is null, never 0.
func TestUnknownIsNotZero(t *testing.T) {
	var r Recording
	x := tickAt(0, math.NaN(), tick.Pod{UID: "b", Name: "b", QoS: tick.QoSReclaimed})
	x.Sample.CPU.UsageMilliCPU = nil
	x.Advice = nil
	r.Add(x)
	r.Add(tickAt(1, 1000, service("web", 1000)))
	text, err := r.Data(false)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"batch":[null,0]`, `"offered":[null,3]`, `"free":[null,3]`, `"services":[0,1]`, `"capacity":[4,4]`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the data has no %s:\n%s", want, text)
		}
	}
	if strings.Contains(string(text), `"throttled"`) {
		t.Error("a figure without any value has a column")
	}
}

// A tick that comes twice counts once, as in the summary.
func TestRepeatedTicksCountOnce(t *testing.T) {
	var r Recording
	for _, second := range []int{0, 1, 1, 2} {
		r.Add(tickAt(second, 1000, service("web", 500)))
	}
	n := read(t, &r).Nodes[0]
	want := []string{"1 tick left out: not newer than the one before."}
	if n.Ticks != 3 || n.Pods[0].Seconds != 1.5 || !slices.Equal(n.Notes, want) {
		t.Errorf("%d ticks, %v s of CPU time, notes %q", n.Ticks, n.Pods[0].Seconds, n.Notes)
	}
}

// A use or an interval that is no measurement leaves the page of the rest.
func TestPageOfNumbersThatAreNoMeasurement(t *testing.T) {
	var r Recording
	for second := range 3 {
		x := tickAt(second, 1000, service("web", 500), service("forged", math.MaxFloat64))
		if second == 1 {
			x.Sample.IntervalSeconds = new(math.MaxFloat64)
		}
		r.Add(x)
	}
	seconds := map[string]float64{}
	for _, p := range read(t, &r).Nodes[0].Pods {
		seconds[p.Name] = p.Seconds
	}
	if d := cmp.Diff(map[string]float64{"shop/web": 1, "shop/forged": 0}, seconds); d != "" {
		t.Errorf("CPU seconds (-want +got):\n%s", d)
	}
}

// Hostile recordings: many nodes, many pods, reasons and pools that all differ. Memory and page stay bounded.
func TestPageIsBounded(t *testing.T) {
	var r Recording
	long := strings.Repeat("x", 3000)
	for i := range 1500 {
		x := tickAt(i, 1000)
		x.Node = fmt.Sprintf("node-%d", i%100)
		for j := range 30 {
			p := service(fmt.Sprintf("%d-%d-%s", i, j, long), 1)
			p.Containers = []tick.Container{{CPUSetCPUs: fmt.Sprintf("%d", (i+j)%4)}}
			x.Sample.Pods = append(x.Sample.Pods, p)
			x.Advice.Reasons = append(x.Advice.Reasons, fmt.Sprintf("%x%s", i*j, long))
			x.Advice.Pools = append(x.Advice.Pools, tick.Pool{Name: fmt.Sprintf("%d %s", i*j, long), CPUs: "0"})
		}
		x.Sample.Errors = []tick.SourceError{{Source: long, Error: fmt.Sprintf("%c%s", 'a'+i%26, long)}}
		r.Add(x)
	}
	text, err := r.Data(false)
	if err != nil {
		t.Fatal(err)
	}
	const most = 12 << 20
	if len(text) > most {
		t.Errorf("the data has %d bytes; want at most %d", len(text), most)
	}
	if len(r.nodes) != mostNodes || !strings.Contains(string(text), "ticks of the others are left out") {
		t.Errorf("%d nodes", len(r.nodes))
	}
}

// A live page removes what is older than it keeps.
func TestLivePageForgets(t *testing.T) {
	r := Recording{Keep: time.Minute}
	for i := range 200 {
		x := tickAt(i, 1000, service(fmt.Sprintf("pod-%d", i/100), 1000))
		x.Advice.Reasons = []string{fmt.Sprintf("reason %d", i)}
		r.Add(x)
	}
	n := read(t, &r).Nodes[0]
	if len(n.Times) > 62 || len(n.Reasons) > 62 || len(n.Pods) != 1 || n.Pods[0].Name != "shop/pod-1" {
		t.Errorf("%d points, %d reasons, pods %+v", len(n.Times), len(n.Reasons), n.Pods)
	}
	want := []string{"The summary is of all ticks since 2026-11-21 08:00:00 UTC."}
	if n.Ticks != len(n.Times) || !slices.Equal(n.Notes, want) {
		t.Errorf("%d ticks in %d points, notes %q; want those %q", n.Ticks, len(n.Times), n.Notes, want)
	}
}

// However long a live page runs, the use and the places of a pod that stays are as fine as at its beginning.
func TestLivePageOfAPodThatStays(t *testing.T) {
	r := Recording{Keep: time.Minute}
	for i := range 1000 {
		p := service("web", float64(i))
		p.Containers = []tick.Container{{CPUSetCPUs: fmt.Sprintf("0-%d", 1+i%2)}}
		r.Add(tickAt(i, 1000, p))
		r.nodes["n"].pods.values, r.nodes["n"].pods.bytes = 100, 50*20*100
	}
	n := read(t, &r).Nodes[0]
	p := n.Pods[0]
	if n.Stretch != 1000 || len(p.Use) > 62 || p.From+len(p.Use) != 1000 || p.Use[len(p.Use)-1] != 1 {
		t.Errorf("stretches of %d ms, use %v from %d on", n.Stretch, p.Use, p.From)
	}
	for i := 2; i < len(p.Where); i += 2 {
		if since := p.Where[i] - p.Where[i-2]; since != 1000 {
			t.Fatalf("a place %d ms after the one before; want one a second in %v", since, p.Where)
		}
	}
}

// A pod's use after a long pause is on the page, at its time, as if the pause had been recorded.
func TestPodsUseAfterAPause(t *testing.T) {
	var r Recording
	const day = 24 * 3600
	for _, second := range []int{0, 1, 2, 4 * day, 4*day + 1, 8 * day} {
		r.Add(tickAt(second, 2000, service("web", 1500)))
	}
	n := read(t, &r).Nodes[0]
	p := n.Pods[0]
	for _, second := range []int64{0, 4 * day, 8 * day} {
		slot := (second*1000-n.Base)/n.Stretch - int64(p.From)
		if slot < 0 || slot >= int64(len(p.Use)) || p.Use[slot] != 1.5 {
			t.Errorf("no use of 1.5 cores at %d s: %d values of %d s each from number %d on", second, len(p.Use), n.Stretch/1000, p.From)
		}
	}
	if len(p.Use) > podValues {
		t.Errorf("%d values; want %d at most", len(p.Use), podValues)
	}

	live := Recording{Keep: time.Hour}
	live.Add(tickAt(0, 2000, service("web", 1500)))
	live.Add(tickAt(4*day, 2000, service("web", 1500)))
	if n := read(t, &live).Nodes[0]; n.Stretch != 1000 || len(n.Pods) != 1 || !slices.Equal(n.Pods[0].Use, []optional{1.5}) {
		t.Errorf("a live page that has forgotten what was before the pause: stretches of %d ms, pods %v", n.Stretch, n.Pods)
	}
}

// When a node's clock is set back a live page begins anew, and goes on with the ticks. One that is late is left out.
func TestLivePageOfAClockThatIsSetBack(t *testing.T) {
	r := Recording{Keep: time.Hour}
	const day = 86400
	for _, second := range []int{0, 1, 0, 2, 3, day, 4, 5} {
		r.Add(tickAt(second, 1000))
	}
	if n := read(t, &r).Nodes[0]; n.End != (day-3)*1000 {
		t.Errorf("with one tick that is ahead: %d ticks, the last one %d ms after the first", n.Ticks, n.End)
	}
	for second := 6; second < 20; second++ {
		r.Add(tickAt(second, 1000))
	}
	n := read(t, &r).Nodes[0]
	want := begin.Add((6 + setBackTicks - 3) * time.Second)
	if n.Start != want.UnixMilli() || n.Ticks != 20-6-setBackTicks+3 || n.Summary[0].Value == "" {
		t.Errorf("%d ticks since %d; want those since %d", n.Ticks, n.Start, want.UnixMilli())
	}
}

// A live page of many nodes has room for new ones when old ones have had no tick for as long as it keeps.
func TestLivePageForgetsNodes(t *testing.T) {
	r := Recording{Keep: time.Hour}
	for i := range 2 * mostNodes {
		x := tickAt(i/mostNodes*7200, 1000)
		x.Node = fmt.Sprintf("n%d", i)
		r.Add(x)
	}
	if d := read(t, &r); len(d.Nodes) != mostNodes || d.Nodes[0].Name != "n32" || len(r.score.Facts("n0")) > 0 {
		t.Errorf("%d nodes, from %s on", len(d.Nodes), d.Nodes[0].Name)
	}
}

func TestPatterns(t *testing.T) {
	p := patterns{index: map[string]int{}}
	for _, s := range []string{"need 1.50 cores of 2 containers -> 0-5,12-17, so 6.", "need 9 cores of 12 containers -> 3, so 1.", "", "7"} {
		row := p.add(s)
		text := p.list[row[0].(int)]
		for _, n := range row[1:] {
			text = strings.Replace(text, string(placeholder), n.(string), 1)
		}
		if text != s {
			t.Errorf("%q comes back as %q", s, text)
		}
	}
	if len(p.list) != 3 {
		t.Errorf("patterns %q; want one for both sentences", p.list)
	}
}

// States that last too short are left out where there is no room, and the last state is always right.
func TestChanges(t *testing.T) {
	c := changes[int]{most: 100}
	for i := range 1000 {
		c.add(begin.Add(time.Duration(i)*time.Second), i, 10)
		if got, found := c.last(); !found || got != i {
			t.Fatalf("the last state is %d; want %d", got, i)
		}
	}
	if len(c.all) > 10 || len(c.all) < 4 || c.spacing < time.Minute {
		t.Errorf("%d states with a spacing of %s", len(c.all), c.spacing)
	}
	for i := 1; i < len(c.all); i++ {
		if !c.all[i].at.After(c.all[i-1].at) {
			t.Errorf("state %d is not later than the one before", i)
		}
	}
	c.before(begin.Add(2 * time.Hour))
	if len(c.all) != 1 || c.size != 10 {
		t.Errorf("%d states of %d bytes after all of them", len(c.all), c.size)
	}
}
