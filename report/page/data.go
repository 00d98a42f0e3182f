package page

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"polder/lib/phrase"
	"polder/report/explain"
	"polder/report/score"
	"polder/report/view"
)

// data is the input of the page's program, which inserts its text only as text, never as markup.
type data struct {
	Live     bool       `json:"live,omitempty"`
	Inserted []string   `json:"inserted,omitempty"`
	Notes    []string   `json:"notes,omitempty"`
	Nodes    []nodeData `json:"nodes"`
}

type nodeData struct {
	Name     string   `json:"name"`
	Policy   string   `json:"policy,omitempty"`
	Shadow   string   `json:"shadow,omitempty"`
	Start    int64    `json:"start"` // milliseconds since 1970; all other times are milliseconds since it
	End      int64    `json:"end"`
	Ticks    int      `json:"ticks"`
	Notes    []string `json:"notes,omitempty"`
	Summary  []fact   `json:"summary"`
	PerPoint int      `json:"perPoint"`
	Times    []int64  `json:"times"` // each since the one before
	// Figures are columns: a value a time, null where it is unknown. A figure that is always unknown has no column.
	Figures  map[string][]optional `json:"values"`
	Patterns []string              `json:"patterns"`
	Reasons  [][]any               `json:"reasons"` // time, then a sentence each
	CPUs     [][3]int              `json:"cpus,omitempty"`
	Pools    []string              `json:"pools,omitempty"` // names
	Cores    [][]any               `json:"cores,omitempty"` // time, then pool and list alternately
	Events   []event               `json:"events"`
	Stretch  int64                 `json:"stretch,omitempty"` // of the pods' use, milliseconds
	Base     int64                 `json:"base,omitempty"`    // the time at which their first stretch begins
	Pods     []podData             `json:"pods,omitempty"`
	Places   []string              `json:"places,omitempty"`
}

// fact is a line of the summary.
type fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type event struct {
	Kind string `json:"kind"`
	From int64  `json:"from"`
	To   int64  `json:"to"`
	Text string `json:"text"`
}

type podData struct {
	Name    string     `json:"name"`
	Class   string     `json:"class"`
	First   int64      `json:"first"`
	Last    int64      `json:"last"`
	Seconds float64    `json:"seconds"`
	Peak    float64    `json:"peak"`
	State   string     `json:"state,omitempty"`
	From    int        `json:"from"`
	Use     []optional `json:"use"`
	Where   []int64    `json:"where,omitempty"` // time and the index of a place, alternately
}

// optional is a number, or unknown.
type optional float64

// MarshalJSON implements [json.Marshaler].
func (m optional) MarshalJSON() ([]byte, error) {
	v := rounded(float64(m))
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return []byte("null"), nil
	}
	return json.Marshal(v)
}

// Data is the recording as the page's program reads it: one line of JSON without <, > or &, whatever the names in it are.
func (r *Recording) Data(live bool) ([]byte, error) {
	d := data{Live: live, Inserted: r.Inserted, Nodes: []nodeData{}}
	for _, name := range slices.Sorted(maps.Keys(r.nodes)) {
		d.Nodes = append(d.Nodes, r.nodes[name].data(explain.Short(name), r.score.Facts(explain.Short(name))))
	}
	if r.otherTicks > 0 {
		d.Notes = append(d.Notes, fmt.Sprintf("The recording has more than %d nodes: %d ticks of the others are left out.", mostNodes, r.otherTicks))
	}
	if live && r.Keep > 0 {
		d.Notes = append(d.Notes, fmt.Sprintf("The page keeps the last %.0f hours.", r.Keep.Hours()))
	}
	out, err := json.Marshal(d) // which writes <, > and & as escapes
	if err != nil {
		return nil, fmt.Errorf("write the page's data: %w", err)
	}
	return out, nil
}

func (n *node) data(name string, facts []score.Fact) nodeData {
	since := func(t time.Time) int64 { return t.Sub(n.first).Milliseconds() }
	d := nodeData{
		Name: name, Policy: n.policy, Shadow: n.shadowPolicy, Start: n.first.UnixMilli(), End: since(n.last), Ticks: n.ticks,
		PerPoint: n.points.per, Figures: n.columns(), Reasons: [][]any{}, Events: []event{},
	}
	for _, f := range facts {
		if slices.Contains([]string{"policy", "time", "ticks"}, f.Name) {
			continue // the page's head has them
		}
		d.Summary = append(d.Summary, fact{f.Name, f.Value})
	}
	var before int64
	for _, p := range n.points.all {
		at := since(p.first)
		d.Times = append(d.Times, at-before)
		before = at
	}
	all := patterns{index: map[string]int{}}
	for _, c := range n.reasons.all {
		row := []any{since(c.at)}
		for _, text := range c.state.text() {
			row = append(row, all.add(text))
		}
		d.Reasons = append(d.Reasons, row)
	}
	d.Patterns = all.list
	n.coresData(&d, since)
	events, more := n.story.Events()
	for _, e := range events {
		d.Events = append(d.Events, event{e.Kind, since(e.From), since(e.To), e.Text})
	}
	n.podsData(&d, since)
	d.Notes = n.notes(more)
	return d
}

func (n *node) columns() map[string][]optional {
	columns := map[string][]optional{}
	for f, name := range names {
		if n.points.per == 1 && (figure(f) == offeredLow || figure(f) == servicesHigh) {
			continue // they are the averages
		}
		column, known := make([]optional, len(n.points.all)), false
		for i, p := range n.points.all {
			column[i] = optional(p.value[f])
			known = known || p.count[f] > 0
		}
		if known {
			columns[name] = column
		}
	}
	return columns
}

func (n *node) coresData(d *nodeData, since func(time.Time) int64) {
	for _, c := range n.cpus {
		d.CPUs = append(d.CPUs, [3]int{c.id, c.core, c.numa})
	}
	index := map[string]int{}
	for _, c := range n.cores.all {
		row := []any{since(c.at)}
		for _, p := range c.state {
			i, known := index[p.Name]
			if !known {
				i = len(d.Pools)
				index[p.Name] = i
				d.Pools = append(d.Pools, p.Name)
			}
			row = append(row, i, p.CPUs)
		}
		d.Cores = append(d.Cores, row)
	}
}

func (n *node) podsData(d *nodeData, since func(time.Time) int64) {
	d.Stretch, d.Base = n.pods.stretch.Milliseconds(), since(n.pods.start)
	index := map[string]int64{}
	for _, p := range n.pods.sorted() {
		x := podData{
			Name: p.name, Class: p.class, First: since(p.first), Last: since(p.last), Seconds: rounded(p.seconds), Peak: rounded(p.peak),
			State: p.evicted, From: max(p.from, 0), Use: make([]optional, len(p.use)),
		}
		for i, v := range p.use {
			x.Use[i] = optional(v)
		}
		for _, w := range p.where.all {
			i, known := index[w.state]
			if !known {
				i = int64(len(d.Places))
				index[w.state] = i
				d.Places = append(d.Places, w.state)
			}
			x.Where = append(x.Where, since(w.at), i)
		}
		d.Pods = append(d.Pods, x)
	}
}

// notes name what the page does not show.
func (n *node) notes(moreEvents int) (s []string) {
	if n.first.After(n.begun) {
		s = append(s, "The summary is of all ticks since "+n.begun.UTC().Format("2006-01-02 15:04:05")+" UTC.")
	}
	if n.points.per > 1 {
		s = append(s, fmt.Sprintf("Each point is the average of %d ticks.", n.points.per))
	}
	if n.reasons.spacing > 0 {
		s = append(s, fmt.Sprintf("Of advise's reasons the page has those of one tick in %s.", view.Span(n.reasons.spacing)))
	}
	if n.cores.spacing > 0 {
		s = append(s, fmt.Sprintf("The map of the cores changes at most once in %s.", view.Span(n.cores.spacing)))
	}
	if moreEvents > 0 {
		s = append(s, fmt.Sprintf("%d events are left out, of the squeezes the smaller ones.", moreEvents))
	}
	if n.pods.more > 0 {
		s = append(s, fmt.Sprintf("The page has only the %d pods that used most CPU.", len(n.pods.all)))
	}
	if n.outOfOrder > 0 {
		s = append(s, phrase.Count(n.outOfOrder, "tick")+" left out: not newer than the one before.")
	}
	if n.dryRun {
		s = append(s, "isolate ran with --dry-run: what was advised was not written.")
	}
	return s
}
