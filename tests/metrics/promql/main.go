// Command promql reads queries on standard input, a JSON object of texts by name, and prints what each of them selects, or
// its syntax error. It is a separate module: Prometheus' parser is for tests alone.
package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
)

// query describes a query.
type query struct {
	Error string `json:"error,omitempty"`
	// Type is what it evaluates to: "vector", "scalar".
	Type      string     `json:"type,omitempty"`
	Selectors []selector `json:"selectors,omitempty"`
	// Groups are the labels of each by, on and group_left, with the metrics that they belong to.
	Groups []group `json:"groups,omitempty"`
}

type selector struct {
	Metric string   `json:"metric"`
	Labels []string `json:"labels,omitempty"`
}

type group struct {
	Labels  []string `json:"labels"`
	Metrics []string `json:"metrics"`
}

func main() {
	var texts map[string]string
	if err := json.NewDecoder(os.Stdin).Decode(&texts); err != nil {
		fmt.Fprintln(os.Stderr, "promql: standard input:", err)
		os.Exit(1)
	}
	found := map[string]query{}
	for name, text := range texts {
		found[name] = read(text)
	}
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		fmt.Fprintln(os.Stderr, "promql:", err)
		os.Exit(1)
	}
}

func read(text string) query {
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(text)
	if err != nil {
		return query{Error: err.Error()}
	}
	q := query{Type: string(expr.Type())}
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			s := selector{Metric: n.Name}
			for _, m := range n.LabelMatchers {
				if m.Name != model.MetricNameLabel {
					s.Labels = append(s.Labels, m.Name)
				}
			}
			q.Selectors = append(q.Selectors, s)
		case *parser.AggregateExpr:
			if len(n.Grouping) > 0 {
				q.Groups = append(q.Groups, group{n.Grouping, metrics(n.Expr)})
			}
		case *parser.BinaryExpr:
			if m := n.VectorMatching; m != nil {
				if len(m.MatchingLabels) > 0 {
					q.Groups = append(q.Groups, group{m.MatchingLabels, metrics(n.LHS)}, group{m.MatchingLabels, metrics(n.RHS)})
				}
				if one := n.RHS; len(m.Include) > 0 {
					if m.Card == parser.CardOneToMany {
						one = n.LHS
					}
					q.Groups = append(q.Groups, group{m.Include, metrics(one)})
				}
			}
		}
		return nil
	})
	return q
}

// metrics are an expression's.
func metrics(e parser.Expr) []string {
	names := map[string]bool{}
	parser.Inspect(e, func(node parser.Node, _ []parser.Node) error {
		if s, ok := node.(*parser.VectorSelector); ok {
			names[s.Name] = true
		}
		return nil
	})
	return slices.Sorted(maps.Keys(names))
}
