package metrics

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"polder/lib/config"
	"polder/lib/tick"
)

// Labels that Prometheus adds to what it scrapes.
var ofTarget = []string{"job", "instance"}

// query is the parser's description of one (promql/main.go).
type query struct {
	Error, Type string
	Selectors   []selector
	Groups      []struct{ Labels, Metrics []string }
}

func parse(t *testing.T, texts map[string]string) map[string]query {
	t.Helper()
	in, err := json.Marshal(texts)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(promql)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var found map[string]query
	if err := json.Unmarshal(out, &found); err != nil {
		t.Fatal(err)
	}
	return found
}

// queryErrors lists the errors of a query, compared with all known metrics.
func queryErrors(q query, all map[string]*family) (wrong []string) {
	if q.Error != "" {
		return []string{q.Error}
	}
	has := func(metric, label string) bool {
		return slices.Contains(ofTarget, label) || all[metric] != nil && all[metric].labels[label] || strings.HasSuffix(metric, "_bucket") && label == "le"
	}
	base := func(metric string) string {
		if name := parts.ReplaceAllString(metric, ""); all[name] != nil && all[name].kind == "histogram" {
			return name
		}
		return metric
	}
	if len(q.Selectors) == 0 {
		wrong = append(wrong, "it selects nothing")
	}
	for _, s := range q.Selectors {
		name := base(s.Metric)
		if all[name] == nil || all[name].kind == "histogram" && name == s.Metric {
			wrong = append(wrong, fmt.Sprintf("there is no metric %s", s.Metric))
			continue
		}
		for _, l := range s.Labels {
			if !has(name, l) {
				wrong = append(wrong, fmt.Sprintf("%s has no label %s", s.Metric, l))
			}
		}
	}
	for _, g := range q.Groups {
		for _, l := range g.Labels {
			if !slices.ContainsFunc(g.Metrics, func(m string) bool { return has(base(m), l) || l == "le" && base(m) != m }) {
				wrong = append(wrong, fmt.Sprintf("none of %v has the label %s", g.Metrics, l))
			}
		}
	}
	return wrong
}

type ruleFile struct {
	Groups []struct {
		Name  string `yaml:"name"`
		Rules []struct {
			Alert       string            `yaml:"alert"`
			Expr        string            `yaml:"expr"`
			For         string            `yaml:"for"`
			Labels      map[string]string `yaml:"labels"`
			Annotations map[string]string `yaml:"annotations"`
		} `yaml:"rules"`
	} `yaml:"groups"`
}

// alertRules reads the rules of the alerts.
func alertRules(t *testing.T) (file ruleFile) {
	t.Helper()
	const path = "../../deploy/monitoring/alerts.yaml"
	data, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := config.Decode(path, data, &file); err != nil {
		t.Fatal(err)
	}
	return file
}

// exprs returns the alerts' expressions by their names.
func (f ruleFile) exprs() map[string]string {
	texts := map[string]string{}
	for _, g := range f.Groups {
		for _, r := range g.Rules {
			texts[r.Alert] = r.Expr
		}
	}
	return texts
}

var inTemplate = regexp.MustCompile(`\$labels\.([a-z]+)`)

// Every alert uses existing metrics and labels, and says what to do.
func TestAlerts(t *testing.T) {
	file := alertRules(t)
	all := everything(t)
	texts := map[string]string{}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			if _, twice := texts[r.Alert]; twice || r.Alert == "" {
				t.Errorf("the alert %q is there twice", r.Alert)
			}
			texts[r.Alert] = r.Expr
			if s := r.Labels["severity"]; s != "critical" && s != "warning" && s != "info" {
				t.Errorf("%s: severity %q", r.Alert, s)
			}
			if len(r.Annotations["summary"]) < 20 || len(r.Annotations["runbook"]) < 60 {
				t.Errorf("%s: the summary and the runbook are too short: %q", r.Alert, r.Annotations)
			}
			for _, m := range inTemplate.FindAllStringSubmatch(r.Annotations["summary"]+r.Annotations["runbook"], -1) {
				if !strings.Contains(r.Expr, m[1]) {
					t.Errorf("%s uses the label %s, which is not in its expression", r.Alert, m[1])
				}
			}
		}
	}
	if len(texts) < 20 {
		t.Fatalf("%d alerts", len(texts))
	}
	for name, q := range parse(t, texts) {
		for _, wrong := range queryErrors(q, all) {
			t.Errorf("%s: %s: %s", name, wrong, texts[name])
		}
		if q.Type != "vector" {
			t.Errorf("%s is a %s", name, q.Type)
		}
	}
}

// The fleet controller's tools expose every node, in rounds of ten seconds: alerts distinguish them from the nodes' own by the label tool,
// with their own thresholds, and ignore what a fleet controller does anyway.
func TestAlertsOfACentre(t *testing.T) {
	must := map[string]string{
		"polder_tick_timestamp_seconds": "tool", "polder_ticks_total": "tool", "polder_dropped_ticks_total": "tool", "polder_refused_ticks_total": "tool",
		"polder_errors_total":        "tool",
		"polder_pressure_met":        "rule", // agent-health is met for as long as an agent is away
		"polder_taint":               "key",
		"polder_evictions_total":     "state",
		"polder_source_errors_total": "", // its tool is always collect: by the instance
	}
	texts, met := alertRules(t).exprs(), map[string]bool{}
	for name, q := range parse(t, texts) {
		instances := slices.ContainsFunc(q.Selectors, func(s selector) bool { return s.Metric == "polder_build_info" && slices.Contains(s.Labels, "tool") })
		for _, s := range q.Selectors {
			label, listed := must[s.Metric]
			met[s.Metric] = true
			if listed && !slices.Contains(s.Labels, label) && (label != "" || !instances) {
				t.Errorf("%s: %s of nodes and fleet controllers alike: %s", name, s.Metric, texts[name])
			}
		}
	}
	for metric := range must {
		if !met[metric] {
			t.Errorf("no alert is about %s", metric)
		}
	}
}

// What counts pods that were evicted does not count requests: a disruption budget refuses them, and each is made again.
func TestEvictedPodsAreNotRequests(t *testing.T) {
	texts := alertRules(t).exprs()
	d := readDashboard(t)
	for _, p := range d.Panels {
		for i, target := range p.Targets {
			texts[fmt.Sprintf("%s %d", p.Title, i)] = target.Expr
		}
	}
	for _, name := range []string{"PolderEvictionsMany", "PolderEvictionStorm", "Evictions today 0", "Evictions, all nodes 0"} {
		if text := texts[name]; !strings.Contains(text, `state=~"created|succeeded"`) {
			t.Errorf("%s: %q; want the states that nothing has refused", name, text)
		}
	}
	for name, text := range texts {
		if strings.Contains(text, tick.StateRequested+`"`) {
			t.Errorf("%s counts requests: %s", name, text)
		}
	}
}

type panel struct {
	ID         int
	Type       string
	Title      string
	Datasource struct{ UID string }
	GridPos    struct{ X, Y, W, H int }
	Targets    []struct{ Expr, LegendFormat string }
}

type selector struct {
	Metric string
	Labels []string
}

type dashboard struct {
	Title, UID string
	Templating struct {
		List []struct {
			Name, Type, Definition string
		}
	}
	Panels []panel
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	data, err := os.ReadFile("../../deploy/monitoring/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

var (
	inLegend  = regexp.MustCompile(`\{\{(\w+)\}\}`)
	ofLabel   = regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`)
	variables = strings.NewReplacer("$__rate_interval", "5m")
)

// Every query of the dashboard uses existing metrics and labels, and panels do not overlap.
func TestDashboard(t *testing.T) {
	d := readDashboard(t)
	all := everything(t)
	found := []string{}
	for _, v := range d.Templating.List {
		found = append(found, v.Name)
		if v.Type != "query" {
			continue
		}
		m := ofLabel.FindStringSubmatch(v.Definition)
		if m == nil || all[m[1]] == nil || !all[m[1]].labels[m[2]] {
			t.Errorf("variable %s: %s", v.Name, v.Definition)
		}
	}
	if strings.Join(found, " ") != "datasource node" {
		t.Errorf("the variables are %v", found)
	}
	texts, ids, taken := map[string]string{}, map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("two panels have the number %d", p.ID)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%s overlaps %s at %d, %d", p.Title, other, x, y)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if p.Datasource.UID != "${datasource}" || len(p.Targets) == 0 {
			t.Errorf("%s: of data source %q, with %d queries", p.Title, p.Datasource.UID, len(p.Targets))
		}
		for i, target := range p.Targets {
			texts[fmt.Sprintf("%s %d: %s", p.Title, i, target.LegendFormat)] = variables.Replace(target.Expr)
		}
	}
	for _, subject := range []string{
		"CPU by class", "Reclaimed CPU: offered, requested, used", "Batch held back, part of the time",
		"CPUs of the pools", "Rules that are met", "Evictions by rule and state",
		"Batch at its memory limit", "Memory: reclaimed, and refaults", "Disks: use and waiting for them", "Uplinks: what services and batch send",
	} {
		if !slices.ContainsFunc(d.Panels, func(p panel) bool { return p.Title == subject }) {
			t.Errorf("there is no panel %q", subject)
		}
	}
	for name, q := range parse(t, texts) {
		for _, wrong := range queryErrors(q, all) {
			t.Errorf("%s: %s: %s", name, wrong, texts[name])
		}
		for _, m := range inLegend.FindAllStringSubmatch(name, -1) {
			if !slices.ContainsFunc(q.Selectors, func(s selector) bool {
				f := all[parts.ReplaceAllString(s.Metric, "")]
				if f == nil {
					f = all[s.Metric]
				}
				return f != nil && f.labels[m[1]]
			}) {
				t.Errorf("%s: nothing has the label %s", name, m[1])
			}
		}
	}
}

// The check finds errors.
func TestQueriesThatAreWrong(t *testing.T) {
	all := everything(t)
	texts := map[string]string{
		"sum by (":                                        "parse error",
		"polder_node_cpu_usage":                           "there is no metric polder_node_cpu_usage",
		`polder_node_cpus{nod="x"}`:                       "polder_node_cpus has no label nod",
		`sum by (rule) (polder_node_cpus)`:                "none of [polder_node_cpus] has the label rule",
		`polder_ticks_total / on (rule) polder_node_cpus`: "none of [polder_ticks_total] has the label rule",
		`polder_tick_handling_seconds`:                    "there is no metric polder_tick_handling_seconds",
		`time()`:                                          "it selects nothing",
		`sum by (le, rule) (polder_tick_handling_seconds_bucket)`: "none of [polder_tick_handling_seconds_bucket] has the label rule",
	}
	queries := map[string]string{}
	for q := range texts {
		queries[q] = q
	}
	for name, q := range parse(t, queries) {
		if wrong := strings.Join(queryErrors(q, all), "; "); !strings.Contains(wrong, texts[name]) {
			t.Errorf("%s: %q; want %q", name, wrong, texts[name])
		}
	}
}
