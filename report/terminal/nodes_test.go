package terminal

import (
	"fmt"
	"testing"
	"time"

	"polder/report/view"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func TestNodesAreForgotten(t *testing.T) {
	var n nodes
	n.add("old", noon)
	n.add("ahead", noon.Add(24*time.Hour)) // its clock is a day ahead
	for at := time.Duration(0); at <= view.ForgetAfter; at += time.Minute {
		n.add("new", noon.Add(at))
	}
	if !n.has("old") || n.others("new") != 2 {
		t.Errorf("a node was forgotten before its time: %v", n.seen)
	}
	n.add("ahead", noon.Add(24*time.Hour+view.ForgetAfter))
	n.add("new", noon.Add(view.ForgetAfter+time.Minute))
	if n.has("old") || n.others("new") != 1 || n.others("old") != 2 {
		t.Errorf("a silent node is still counted, or another one is not: %v", n.seen)
	}
}

func TestNodesAreBounded(t *testing.T) {
	var n nodes
	for i := range 2 * maxNodes {
		n.add(fmt.Sprint(i), noon)
	}
	if len(n.seen) != maxNodes {
		t.Errorf("%d nodes are remembered", len(n.seen))
	}
}
